//! Going on with an answer from where it was interrupted (`Heddle` §4.2): the
//! request that asks for the rest, and the rest as if it had never been a
//! second request.
//!
//! What can't be gone on with faithfully is not interrupted: several answers at
//! once, log-probabilities, guided decoding, tools and reasoning, whose parsers
//! at the engine would begin in the middle.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use treadle_model::EngineKind;
use treadle_wire::{Endpoint, SseError, SseScanner};

/// Why an answer is not interrupted.
pub(super) type Obstacle = &'static str;

/// An obstacle for a moment only.
pub(super) const WHITE_SPACE: Obstacle = "it ends at white space";

/// Fields of a request that are obstacles, unless they are empty.
const OBSTACLES: [&str; 23] = [
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "return_logprob",
    "return_hidden_states",
    "echo",
    "suffix",
    "use_beam_search",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "tools",
    "functions",
    "continue_final_message",
    "return_routed_experts",
];
/// Tokens that vLLM and SGLang generate where a request of this kind sets no bound.
const OUTPUT_TOKENS_DEFAULT: u64 = 16;
/// What names an answer, the same in all its events.
const NAMES: [&str; 4] = ["id", "created", "request_id", "model"];

/// An answer that is to be gone on with.
#[derive(Debug, PartialEq)]
pub(super) struct Continuation {
    /// The request for the rest.
    pub(super) body: Bytes,
    /// Tokens generated so far.
    seen: u64,
    /// What names the answer.
    names: Map<String, Value>,
    /// What SGLang's events repeat each time.
    so_far: (String, Vec<Value>),
}

/// An answer so far.
#[derive(Default)]
struct PartialAnswer {
    text: String,
    ids: Vec<Value>,
    /// All text came with its token ids.
    has_ids: bool,
}

impl Continuation {
    /// The rest of an answer to `request`, of which these events have come.
    /// `seen` is how many tokens they are.
    pub(super) fn of(
        endpoint: Endpoint,
        engine: EngineKind,
        request: &[u8],
        events: &[Value],
        seen: u64,
    ) -> Result<Self, Obstacle> {
        let mut request: Map<String, Value> =
            serde_json::from_slice(request).map_err(|_| "its request is not a JSON object")?;
        check(&request)?;
        if let Some(Value::Object(sampling)) = request.get("sampling_params") {
            check(sampling)?;
        }
        let answer = match endpoint {
            Endpoint::SglangGenerate => answer_so_far(events)?,
            Endpoint::Messages => return Err("its API has no way to go on"),
            _ => answer_from_parts(endpoint, events)?,
        };
        let by_ids = extend_prompt(&mut request, endpoint, engine, &answer)?;
        let seen = if by_ids {
            answer.ids.len() as u64
        } else {
            seen
        };
        lower_limits(&mut request, endpoint, engine, seen)?;
        let body = serde_json::to_vec(&request).map_err(|_| "its request is not a JSON object")?;
        Ok(Self {
            body: body.into(),
            seen,
            names: names(events),
            so_far: (answer.text, answer.ids),
        })
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Fails if something in a request is an obstacle.
pub(super) fn check(options: &Map<String, Value>) -> Result<(), Obstacle> {
    let is_set = |name: &&&str| options.get(**name).is_some_and(|value| !is_empty(value));
    if let Some(name) = OBSTACLES.iter().find(is_set) {
        return Err(name);
    }
    let many = |name| options.get(name).and_then(Value::as_u64).unwrap_or(1) > 1;
    if many("n") || many("best_of") {
        return Err("it is several answers");
    }
    match options.get("response_format").map(|format| &format["type"]) {
        None | Some(Value::Null) => Ok(()),
        Some(kind) if kind == "text" => Ok(()),
        Some(_) => Err("response_format"),
    }
}

/// OpenAI's events each add a part.
fn answer_from_parts(endpoint: Endpoint, events: &[Value]) -> Result<PartialAnswer, Obstacle> {
    let mut answer = PartialAnswer {
        has_ids: true,
        ..PartialAnswer::default()
    };
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        if !choice["finish_reason"].is_null() {
            return Err("it has ended");
        }
        let delta = &choice["delta"];
        for name in ["tool_calls", "reasoning_content", "reasoning", "refusal"] {
            if !is_empty(&delta[name]) {
                return Err("it calls a tool or reasons");
            }
        }
        let text = match endpoint {
            Endpoint::ChatCompletions => &delta["content"],
            _ => &choice["text"],
        };
        let text = text.as_str().unwrap_or_default();
        match choice["token_ids"].as_array() {
            Some(ids) => answer.ids.extend(ids.iter().cloned()),
            None => answer.has_ids &= text.is_empty(),
        }
        answer.text.push_str(text);
    }
    Ok(answer)
}

/// SGLang's events each repeat all that was generated.
fn answer_so_far(events: &[Value]) -> Result<PartialAnswer, Obstacle> {
    let Some(last) = events.last() else {
        return Ok(PartialAnswer::default());
    };
    if !last["meta_info"]["finish_reason"].is_null() {
        return Err("it has ended");
    }
    let ids = last["output_ids"].as_array().cloned().unwrap_or_default();
    if last["meta_info"]["completion_tokens"].as_u64() != Some(ids.len() as u64) {
        return Err("its events do not contain all that was generated");
    }
    Ok(PartialAnswer {
        text: last["text"].as_str().unwrap_or_default().to_owned(),
        ids,
        has_ids: true,
    })
}

/// Puts the answer so far behind the prompt; true if as token ids.
fn extend_prompt(
    request: &mut Map<String, Value>,
    endpoint: Endpoint,
    engine: EngineKind,
    answer: &PartialAnswer,
) -> Result<bool, Obstacle> {
    let ids_of = match endpoint {
        Endpoint::ChatCompletions => return extend_chat(request, engine, &answer.text),
        Endpoint::VllmGenerate => "token_ids",
        Endpoint::SglangGenerate => "input_ids",
        _ => "prompt",
    };
    let text_of = if endpoint == Endpoint::SglangGenerate {
        "text"
    } else {
        "prompt"
    };
    if let Some(Value::String(prompt)) = request.get_mut(text_of) {
        prompt.push_str(&answer.text);
        return Ok(false);
    }
    match request.get_mut(ids_of) {
        Some(Value::Array(ids)) if ids.iter().all(Value::is_u64) => {
            if !answer.has_ids {
                return Err("its answer has no token ids; ask for them with `return_token_ids`");
            }
            ids.extend(answer.ids.iter().cloned());
            Ok(true)
        }
        _ => Err("its prompt is several"),
    }
}

fn extend_chat(
    request: &mut Map<String, Value>,
    engine: EngineKind,
    text: &str,
) -> Result<bool, Obstacle> {
    if text.is_empty() {
        return Ok(false);
    }
    // Templates trim messages: tokens would be lost.
    if text.trim() != text {
        return Err(WHITE_SPACE);
    }
    let Some(Value::Array(messages)) = request.get_mut("messages") else {
        return Err("its request has no messages");
    };
    if messages
        .last()
        .is_some_and(|last| last["role"] == "assistant")
    {
        return Err("it goes on with a message already");
    }
    messages.push(json!({"role": "assistant", "content": text}));
    // llama.cpp continues a last message of the assistant on its own.
    if engine != EngineKind::Llamacpp {
        request.insert("continue_final_message".into(), true.into());
        request.insert("add_generation_prompt".into(), false.into());
    }
    Ok(false)
}

fn lower_limits(
    request: &mut Map<String, Value>,
    endpoint: Endpoint,
    engine: EngineKind,
    seen: u64,
) -> Result<(), Obstacle> {
    let in_sampling = matches!(endpoint, Endpoint::VllmGenerate | Endpoint::SglangGenerate);
    let options = if in_sampling {
        let sampling = request
            .entry("sampling_params")
            .or_insert_with(|| json!({}));
        sampling.as_object_mut().ok_or("its prompt is several")?
    } else {
        request
    };
    for least in ["min_tokens", "min_new_tokens"] {
        if let Some(tokens) = options.get(least).and_then(Value::as_u64) {
            options.insert(least.into(), tokens.saturating_sub(seen).into());
        }
    }
    let names = ["max_completion_tokens", "max_new_tokens", "max_tokens"];
    let names = names.into_iter().chain(["n_predict"]);
    let mut is_bounded = false;
    for name in names {
        if let Some(most) = options.get(name).and_then(Value::as_u64) {
            is_bounded = true;
            options.insert(name.into(), left(most, seen)?.into());
        }
    }
    let has_default = endpoint != Endpoint::ChatCompletions && engine != EngineKind::Llamacpp;
    if !is_bounded && has_default {
        // SGLang's own default is greater; there the bound is always set.
        let name = if endpoint == Endpoint::SglangGenerate {
            return Err("it has no bound on its tokens");
        } else {
            "max_tokens"
        };
        options.insert(name.into(), left(OUTPUT_TOKENS_DEFAULT, seen)?.into());
    }
    Ok(())
}

fn left(most: u64, seen: u64) -> Result<u64, Obstacle> {
    let left = most.checked_sub(seen).filter(|left| *left > 0);
    left.ok_or("it is about to end")
}

fn names(events: &[Value]) -> Map<String, Value> {
    let mut names = Map::new();
    for event in events.first().into_iter().chain(events.get(1)) {
        for name in NAMES {
            if let (Some(value), false) = (event.get(name), names.contains_key(name)) {
                names.insert(name.to_owned(), value.clone());
            }
        }
        if let Some(id) = event["meta_info"].get("id") {
            names.insert("meta_info.id".into(), id.clone());
        }
    }
    names
}

/// Makes the events of a continuation those of one answer.
pub(super) struct Rewriter {
    scanner: SseScanner,
    of: Continuation,
}

impl Rewriter {
    /// At the beginning of the rest.
    pub(super) fn new(of: Continuation) -> Self {
        Self {
            scanner: SseScanner::default(),
            of,
        }
    }

    /// What the client is to see of these bytes.
    pub(super) fn feed(&mut self, data: &[u8]) -> Result<Bytes, SseError> {
        let (of, mut out) = (&self.of, Vec::with_capacity(data.len()));
        self.scanner.feed(data, &mut |event| {
            let rewritten = match serde_json::from_slice(event) {
                Ok(event) => of.rewrite(event).and_then(|e| serde_json::to_vec(&e).ok()),
                // The end of the stream, or what is not JSON, as it is.
                Err(_) => Some(event.to_vec()),
            };
            if let Some(event) = rewritten {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&event);
                out.extend_from_slice(b"\n\n");
            }
        })?;
        Ok(out.into())
    }

    /// True between two events.
    pub(super) fn is_between_events(&self) -> bool {
        self.scanner.ended_cleanly()
    }
}

impl Continuation {
    /// Nothing for an event that a client has seen the like of already.
    fn rewrite(&self, mut event: Value) -> Option<Value> {
        let fields = event.as_object_mut()?;
        for name in NAMES {
            if let (Some(field), Some(first)) = (fields.get_mut(name), self.names.get(name)) {
                *field = first.clone();
            }
        }
        fields.remove("prompt_token_ids");
        let mut opens = false;
        if let Some(Value::Array(choices)) = fields.get_mut("choices") {
            for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
                choice.remove("prompt_token_ids");
                let ends = choice
                    .get("finish_reason")
                    .is_some_and(|end| !end.is_null());
                if let Some(Value::Object(delta)) = choice.get_mut("delta") {
                    let had_role = delta.remove("role").is_some();
                    opens |= had_role && !ends && delta.values().all(is_empty);
                }
            }
        }
        if let Some(Value::Object(usage)) = fields.get_mut("usage") {
            self.add_up(usage);
        }
        if let Some(Value::Object(timings)) = fields.get_mut("timings") {
            add(timings, "predicted_n", self.seen);
            take_off(timings, &["cache_n", "prompt_n"], self.seen);
        }
        if fields.contains_key("meta_info") {
            self.repeat(fields);
        }
        (!opens).then_some(event)
    }

    /// The prompt is the first request's, the output all of it.
    fn add_up(&self, usage: &mut Map<String, Value>) {
        add(usage, "completion_tokens", self.seen);
        take_off(usage, &["prompt_tokens"], self.seen);
        let prompt = usage.get("prompt_tokens").and_then(Value::as_u64);
        let details = usage.get_mut("prompt_tokens_details");
        if let Some(Value::Object(details)) = details {
            at_most(details, "cached_tokens", prompt);
        }
    }

    /// SGLang's events repeat all that was generated.
    fn repeat(&self, fields: &mut Map<String, Value>) {
        let (text, ids) = &self.so_far;
        if let Some(Value::String(fresh)) = fields.get_mut("text") {
            fresh.insert_str(0, text);
        }
        if let Some(Value::Array(fresh)) = fields.get_mut("output_ids") {
            fresh.splice(0..0, ids.iter().cloned());
        }
        let Some(Value::Object(meta)) = fields.get_mut("meta_info") else {
            return;
        };
        if let Some(id) = self.names.get("meta_info.id") {
            meta.insert("id".into(), id.clone());
        }
        add(meta, "completion_tokens", self.seen);
        take_off(meta, &["prompt_tokens"], self.seen);
        let prompt = meta.get("prompt_tokens").and_then(Value::as_u64);
        at_most(meta, "cached_tokens", prompt);
        if let Some(Value::Object(end)) = meta.get_mut("finish_reason") {
            add(end, "length", self.seen);
        }
    }
}

fn add(counts: &mut Map<String, Value>, name: &str, more: u64) {
    if let Some(count) = counts.get(name).and_then(Value::as_u64) {
        counts.insert(name.into(), count.saturating_add(more).into());
    }
}

/// Takes so much off these counts together, the first first.
fn take_off(counts: &mut Map<String, Value>, names: &[&str], mut less: u64) {
    for name in names {
        if let Some(count) = counts.get(*name).and_then(Value::as_u64) {
            let taken = count.min(less);
            less -= taken;
            counts.insert((*name).into(), (count - taken).into());
        }
    }
}

fn at_most(counts: &mut Map<String, Value>, name: &str, most: Option<u64>) {
    if let (Some(count), Some(most)) = (counts.get(name).and_then(Value::as_u64), most) {
        counts.insert(name.into(), count.min(most).into());
    }
}

#[cfg(test)]
mod tests;
