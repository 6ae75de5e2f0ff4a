//! Parses generation requests of all APIs into one form.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use treadle_engine_model::render_prompt;

use super::EngineSimOptions;
use super::error::ApiError;
use super::shape::Shape;
use super::tokens;
use super::tools::{Call, Tool, call_for, commands_in};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The header that names a rank of data parallelism, as in vLLM.
const RANK_HEADER: &str = "x-data-parallel-rank";

/// A generation request.
#[allow(clippy::struct_excessive_bools, reason = "as the APIs have them")]
pub(super) struct Generation {
    pub(super) shape: Shape,
    /// The id of the answer, which an abort refers to.
    pub(super) id: String,
    /// The requested model or adapter.
    pub(super) model: Option<String>,
    pub(super) prompt: Vec<u8>,
    /// `None`: the server chooses.
    pub(super) max_tokens: Option<u32>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Whether each event contains the usage so far.
    pub(super) continuous_usage: bool,
    pub(super) return_token_ids: bool,
    pub(super) return_logprobs: bool,
    /// Number of alternative tokens with log-probabilities for each token.
    pub(super) top_logprobs: usize,
    /// Number of choices.
    pub(super) choices: usize,
    /// The meaning of `max_tokens`.
    pub(super) limit: Limit,
    /// The tool call of the answer; `None` for text.
    pub(super) call: Option<Call>,
    pub(super) priority: i32,
    pub(super) salt: Option<String>,
    pub(super) seed: u64,
    /// The rank that has to serve it; `None`: the server chooses.
    pub(super) rank: Option<u32>,
    /// What it has to do with another engine's part of it.
    pub(super) handover: super::kv_params::KvTransferParams,
}

/// The meaning of a request's number of tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Limit {
    /// The length of the answer: benchmarks determine what is generated.
    Exactly,
    /// An upper limit, as agents set it.
    AtMost,
}

/// Maximum number of choices.
const CHOICES_MAX: u32 = 128;
/// Maximum number of alternative tokens.
const TOP_LOGPROBS_MAX: u64 = 20;

/// Fields of all bodies besides the prompt. Unknown fields are ignored, as real engines do.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CommonFields {
    pub(super) model: Option<String>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    sampling_params: Option<SamplingParams>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    seed: Option<i64>,
    priority: Option<i32>,
    cache_salt: Option<String>,
    extra_key: Option<String>,
    request_id: Option<String>,
    rid: Option<String>,
    /// What SGLang calls the rank, and routers that know ranks send.
    #[serde(alias = "routed_dp_rank")]
    data_parallel_rank: Option<u32>,
    kv_transfer_params: Option<super::kv_params::KvTransferParams>,
    return_token_ids: Option<bool>,
    return_logprob: Option<bool>,
    /// A flag or a number.
    logprobs: Value,
    top_logprobs: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SamplingParams {
    max_tokens: Option<u32>,
    max_new_tokens: Option<u32>,
    seed: Option<i64>,
    n: Option<u32>,
    logprobs: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

impl CommonFields {
    /// The requested number of tokens, from the field that the API has for it.
    pub(super) fn tokens_wanted(&self) -> Option<u32> {
        let sampled = self.sampling_params.as_ref();
        let sampled = sampled.and_then(|each| each.max_new_tokens.or(each.max_tokens));
        self.max_completion_tokens.or(self.max_tokens).or(sampled)
    }

    pub(super) fn stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(super) fn include_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .and_then(|each| each.include_usage)
            .unwrap_or(false)
    }

    fn continuous_usage(&self) -> bool {
        let options = self.stream_options.as_ref();
        let is_asked = options.and_then(|each| each.continuous_usage_stats);
        self.include_usage() && is_asked.unwrap_or(false)
    }

    /// Fails if something is requested that the simulation does not support.
    pub(super) fn check(&self, choices_max: u32) -> Result<(), ApiError> {
        let sampled = self.sampling_params.as_ref().and_then(|each| each.n);
        let choices = self.n.or(sampled).unwrap_or(1);
        if !(1..=choices_max).contains(&choices) {
            return Err(ApiError::invalid(format!(
                "n: the simulated engine supports 1 to {choices_max} choices here"
            )));
        }
        if self.tokens_wanted() == Some(0) {
            return Err(ApiError::invalid("max_tokens must be at least 1"));
        }
        Ok(())
    }

    /// In completions `logprobs` is the number itself.
    fn top_logprobs(&self) -> usize {
        let number = self.top_logprobs.or(self.logprobs.as_u64());
        number.unwrap_or(0).min(TOP_LOGPROBS_MAX) as usize
    }

    fn generation(self, shape: Shape, prompt: Vec<u8>, id: &str) -> Result<Generation, ApiError> {
        if prompt.is_empty() {
            return Err(ApiError::invalid(
                "the prompt is empty: send at least one token",
            ));
        }
        let sampled = self.sampling_params.as_ref();
        let return_logprobs = self.return_logprob.unwrap_or(false)
            || !matches!(self.logprobs, Value::Null | Value::Bool(false))
            || sampled.is_some_and(|each| each.logprobs.is_some());
        let sampled_seed = self.sampling_params.as_ref().and_then(|each| each.seed);
        Ok(Generation {
            shape,
            id: shape.response_id(id),
            prompt,
            max_tokens: self.tokens_wanted(),
            stream: self.stream(),
            include_usage: self.include_usage(),
            continuous_usage: self.continuous_usage(),
            return_token_ids: self.return_token_ids.unwrap_or(false),
            return_logprobs,
            top_logprobs: self.top_logprobs(),
            choices: self.n.unwrap_or(1) as usize,
            limit: Limit::Exactly,
            call: None,
            priority: self.priority.unwrap_or(0),
            model: self.model,
            salt: self.cache_salt.or(self.extra_key),
            seed: self.seed.or(sampled_seed).unwrap_or(0).cast_unsigned(),
            rank: self.data_parallel_rank,
            handover: self.kv_transfer_params.unwrap_or_default(),
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

/// One token of the template in front of a chat.
const TEMPLATE_TOKEN: [u8; 4] = *b"<t> ";

/// The prompt of a chat, after the given number of template tokens and the tools that it offers.
pub(super) fn render(messages: &[Message], tools: Option<&str>, template_tokens: u32) -> Vec<u8> {
    let contents: Vec<String> = messages.iter().map(Message::text).collect();
    let pairs = messages.iter().zip(&contents);
    let chat =
        render_prompt(pairs.map(|(message, content)| (message.role.as_str(), content.as_str())));
    if template_tokens == 0 && tools.is_none() {
        return chat;
    }
    let mut prompt = TEMPLATE_TOKEN.repeat(template_tokens as usize);
    if let Some(tools) = tools {
        for part in ["<|tools|>", tools, "\n"] {
            prompt.extend_from_slice(part.as_bytes());
        }
    }
    prompt.extend_from_slice(&chat);
    prompt
}

impl Message {
    fn text(&self) -> String {
        let mut text = match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts.iter().map(|part| part.text.as_str()).collect(),
            None => String::new(),
        };
        if let Some(calls) = &self.tool_calls {
            text.push_str(calls.get());
        }
        text
    }
}

#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    #[serde(default)]
    continue_final_message: bool,
    tools: Option<Box<RawValue>>,
    #[serde(default)]
    tool_choice: Value,
}

impl ChatBody {
    /// The raw JSON of the tools; `None` for an empty list.
    fn tools(&self) -> Option<&str> {
        let tools = self.tools.as_ref().map(|tools| tools.get());
        tools.filter(|tools| !matches!(*tools, "null" | "[]"))
    }

    /// Whether the answer may be a tool call; a continued message stays text.
    fn may_call(&self) -> bool {
        self.tools().is_some() && self.tool_choice != "none" && !self.continue_final_message
    }

    /// The tool call that answers this chat, if any.
    fn call(&self, prompt: &[u8], seed: u64) -> Result<Option<Call>, ApiError> {
        let Some(tools) = self.tools() else {
            return Ok(None);
        };
        let tools: Vec<Tool> = parse(tools.as_bytes())?;
        let results = self.messages.iter().filter(|each| each.role == "tool");
        let number = xxh3_64_with_seed(prompt, seed);
        let users = self.messages.iter().filter(|each| each.role == "user");
        let commands: Vec<String> = users.flat_map(|each| commands_in(&each.text())).collect();
        let (results, choice) = (results.count(), &self.tool_choice);
        Ok(call_for(&tools, choice, results, number, &commands))
    }
}

/// The prompt of a chat; if the last message is to be continued, the prompt ends with it.
fn render_chat(chat: &ChatBody, template_tokens: u32) -> Vec<u8> {
    let mut prompt = render(&chat.messages, chat.tools(), template_tokens);
    if chat.continue_final_message {
        prompt.truncate(prompt.len() - "\n<|assistant|>".len());
    }
    prompt
}

#[derive(Deserialize)]
struct CompletionBody {
    prompt: PromptInput,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PromptInput {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    IdLists(Vec<Vec<u32>>),
}

impl PromptInput {
    fn bytes(self) -> Result<Vec<u8>, ApiError> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Ids(ids) => Ok(tokens::bytes(&ids)),
            Self::Texts(mut texts) if texts.len() == 1 => Ok(texts.remove(0).into_bytes()),
            Self::IdLists(lists) if lists.len() == 1 => Ok(tokens::bytes(&lists[0])),
            Self::Texts(_) | Self::IdLists(_) => Err(ApiError::invalid(
                "prompt: the simulated engine accepts one prompt per request",
            )),
        }
    }
}

#[derive(Deserialize)]
struct TokenBody {
    token_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct SglangBody {
    text: Option<String>,
    input_ids: Option<Vec<u32>>,
}

/// Parses JSON; the error contains the position.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid(format!("body: {error}")))
}

/// Number of tokens of a chat's prompt.
pub(super) fn count_chat(body: &[u8], options: &EngineSimOptions) -> Result<usize, ApiError> {
    let prompt = render_chat(&parse(body)?, options.template_tokens);
    Ok(tokens::count(&prompt))
}

/// The rank of data parallelism that a request names in its header.
pub(super) fn rank_header(headers: &HeaderMap) -> Result<Option<u32>, ApiError> {
    let Some(value) = headers.get(RANK_HEADER) else {
        return Ok(None);
    };
    let rank = value.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || ApiError::invalid(format!("{RANK_HEADER} must be the number of a rank"));
    rank.map(Some).ok_or_else(wrong)
}

/// Parses a generation request. `fallback_id` is used if neither body nor headers contain an id.
pub(super) fn read(
    shape: Shape,
    body: &[u8],
    headers: &HeaderMap,
    options: &EngineSimOptions,
    fallback_id: &str,
) -> Result<Generation, ApiError> {
    let mut fields: CommonFields = parse(body)?;
    let choices_max = match shape {
        Shape::Chat | Shape::Completion => CHOICES_MAX,
        Shape::Tokens | Shape::Sglang => 1,
    };
    options.check_model(fields.model.as_deref())?;
    fields.check(choices_max)?;
    let chat: Option<ChatBody> = match shape {
        Shape::Chat => Some(parse(body)?),
        _ => None,
    };
    let prompt = match shape {
        Shape::Chat => chat
            .as_ref()
            .map_or_else(Vec::new, |chat| render_chat(chat, options.template_tokens)),
        Shape::Completion => parse::<CompletionBody>(body)?.prompt.bytes()?,
        Shape::Tokens => tokens::bytes(&parse::<TokenBody>(body)?.token_ids),
        Shape::Sglang => match parse::<SglangBody>(body)? {
            SglangBody {
                text: Some(text),
                input_ids: None,
            } => text.into_bytes(),
            SglangBody {
                text: None,
                input_ids: Some(ids),
            } => tokens::bytes(&ids),
            _ => return Err(ApiError::invalid("send either text or input_ids")),
        },
    };
    let header = headers
        .get("x-request-id")
        .and_then(|value| value.to_str().ok());
    let id = fields.request_id.take().or(fields.rid.take());
    let id = id.unwrap_or_else(|| header.unwrap_or(fallback_id).to_owned());
    let mut generation = fields.generation(shape, prompt, &id)?;
    generation.rank = rank_header(headers)?.or(generation.rank);
    if let Some(chat) = &chat
        && chat.may_call()
    {
        let seed = options.seed ^ generation.seed;
        generation.call = chat.call(&generation.prompt, seed)?;
        generation.limit = Limit::AtMost;
    }
    Ok(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(template_tokens: u32) -> EngineSimOptions {
        EngineSimOptions {
            model: "m".to_owned(),
            template_tokens,
            ..EngineSimOptions::default()
        }
    }

    fn read_ok(shape: Shape, body: &str) -> Generation {
        let headers = HeaderMap::new();
        read(shape, body.as_bytes(), &headers, &options(0), "7").expect("a good body")
    }

    fn read_error(shape: Shape, body: &str) -> String {
        match read(shape, body.as_bytes(), &HeaderMap::new(), &options(0), "7") {
            Ok(_) => panic!("{body} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_api_leads_to_the_same_form() {
        let chat = read_ok(
            Shape::Chat,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
               "max_completion_tokens":3,"stream":true,"stream_options":{"include_usage":true}}"#,
        );
        assert_eq!(chat.prompt, b"<|user|>hi\n<|assistant|>");
        assert!(chat.stream && chat.include_usage);
        assert_eq!((chat.id.as_str(), chat.max_tokens), ("chatcmpl-7", Some(3)));

        let ids = read_ok(
            Shape::Completion,
            r#"{"prompt":[1684234849],"request_id":"r"}"#,
        );
        assert_eq!(
            (ids.prompt.as_slice(), ids.id.as_str()),
            (&b"abcd"[..], "cmpl-r-0")
        );
        let tokens = r#"{"token_ids":[1684234849],"sampling_params":{"max_tokens":5}}"#;
        let tokens = read_ok(Shape::Tokens, tokens);
        assert_eq!(
            (tokens.prompt, tokens.max_tokens),
            (b"abcd".to_vec(), Some(5))
        );
        let sglang = r#"{"text":"abcd","sampling_params":{"max_new_tokens":5},"rid":"r"}"#;
        let sglang = read_ok(Shape::Sglang, sglang);
        assert_eq!((sglang.id.as_str(), sglang.max_tokens), ("r", Some(5)));
        let goes_on = read_ok(
            Shape::Chat,
            r#"{"messages":[{"role":"assistant","content":"so"}],"continue_final_message":true,
               "logprobs":true}"#,
        );
        assert_eq!(goes_on.prompt, b"<|assistant|>so");
        assert!(goes_on.return_logprobs && !sglang.return_logprobs);
    }

    #[test]
    fn a_template_is_in_front_of_chats_alone() {
        let (headers, options) = (HeaderMap::new(), options(2));
        let read = |shape, body: &str| {
            let read = read(shape, body.as_bytes(), &headers, &options, "7");
            read.expect("a good body").prompt
        };
        let chat = read(
            Shape::Chat,
            r#"{"messages":[{"role":"user","content":"hi"}]}"#,
        );
        assert_eq!(chat, b"<t> <t> <|user|>hi\n<|assistant|>");
        assert_eq!(read(Shape::Completion, r#"{"prompt":"hi"}"#), b"hi");
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let error = read_error(Shape::Chat, r#"{"model":"other","messages":[]}"#);
        assert!(error.contains("`other` does not exist"));
        assert!(read_error(Shape::Completion, r#"{"prompt":"x","n":0}"#).starts_with("n:"));
        let two = r#"{"token_ids":[1],"sampling_params":{"n":2}}"#;
        assert!(read_error(Shape::Tokens, two).starts_with("n:"));
        assert!(read_error(Shape::Completion, r#"{"prompt":""}"#).contains("empty"));
        assert!(read_error(Shape::Completion, r#"{"prompt":["a","b"]}"#).starts_with("prompt:"));
        assert!(read_error(Shape::Sglang, "{}").contains("text or input_ids"));
        assert!(read_error(Shape::Chat, "{").starts_with("body:"));
    }
}
