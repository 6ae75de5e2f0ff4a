//! Translates a chat completion to a message of `/v1/messages`, event by event or as a whole.

use super::MessagesRequest;
use crate::chat::{CallDelta, ChatTranslator, ChatUsage, Choice, Chunk};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use treadle_wire::endpoint::Endpoint;
use treadle_wire::error::{ErrorBody, ErrorCode};
use treadle_wire::error_event::event_of_answer;

/// The signature of reasoning. Clients send back only what is signed, and no engine checks it.
const SIGNATURE: &str = "unsigned";
/// The status of an engine's error that names none.
const STATUS_OTHERWISE: u16 = 502;

/// A block of content; a call has its number in the chat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Block {
    Thinking,
    Text,
    Call(usize),
}

/// Builds a message from an engine's chat completion. A stream is translated without being
/// buffered.
#[derive(Debug)]
pub struct MessageBuilder {
    name: String,
    model: String,
    /// The request's stop sequences.
    stops: Vec<String>,
    out: Vec<u8>,
    is_begun: bool,
    is_over: bool,
    /// Blocks before the open one.
    closed: usize,
    open: Option<Block>,
    /// The number of the newest call.
    last_call: Option<usize>,
    finish: Option<String>,
    /// The stop sequence that ended it.
    stop: Option<String>,
    usage: Option<ChatUsage>,
}

impl MessageBuilder {
    /// A builder for the answer to `request`. `name` is a unique part of its ids, letters and
    /// digits.
    pub fn new(request: &MessagesRequest, name: String) -> Self {
        let model = request.given("model");
        let model = model.and_then(|model| serde_json::from_str(model.get()).ok());
        let stops = request.given("stop_sequences");
        let stops = stops.and_then(|stops| serde_json::from_str(stops.get()).ok());
        Self {
            name,
            model: model.unwrap_or_default(),
            stops: stops.unwrap_or_default(),
            out: Vec::new(),
            is_begun: false,
            is_over: false,
            closed: 0,
            open: None,
            last_call: None,
            finish: None,
            stop: None,
            usage: None,
        }
    }

    fn take_chunk(&mut self, mut chunk: Chunk) {
        self.note_head(&mut chunk);
        self.begin();
        for mut choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) != 0 {
                continue;
            }
            self.note_end(&mut choice);
            let mut delta = choice.delta.or(choice.message).unwrap_or_default();
            if let Some(more) = delta.take_reasoning() {
                self.write(Block::Thinking, "thinking", &more);
            }
            if let Some(more) = delta.take_text() {
                self.write(Block::Text, "text", &more);
            }
            for (place, call) in delta.tool_calls.into_iter().flatten().enumerate() {
                self.take_call(place, call);
            }
        }
    }

    fn note_head(&mut self, chunk: &mut Chunk) {
        if let Some(model) = chunk.model.take().filter(|model| !model.is_empty()) {
            self.model = model;
        }
        self.usage = chunk.usage.or(self.usage);
    }

    fn note_end(&mut self, choice: &mut Choice) {
        let stops = [choice.stop_reason.take(), choice.matched_stop.take()];
        for stop in stops.iter().flatten().filter_map(Value::as_str) {
            // Engines also name tokens and sequences of their own.
            if self.stops.iter().any(|own| own == stop) {
                self.stop = Some(stop.to_owned());
            }
        }
        self.finish = choice.finish_reason.take().or(self.finish.take());
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true) {
            let message = self.message("", false);
            self.event("message_start", &format!("\"message\":{message}"));
        }
    }

    /// Adds to a block, which is opened if another one is open.
    fn write(&mut self, block: Block, field: &str, more: &str) {
        if self.open != Some(block) {
            self.open(block, &format!("{{\"type\":\"{field}\",\"{field}\":\"\"}}"));
        }
        self.delta(&format!("{field}_delta"), field, more);
    }

    fn open(&mut self, block: Block, content: &str) {
        self.close();
        self.open = Some(block);
        let fields = format!("\"index\":{},\"content_block\":{content}", self.closed);
        self.event("content_block_start", &fields);
    }

    fn delta(&mut self, kind: &str, field: &str, value: &str) {
        let delta = json!({"type": kind, field: value});
        let fields = format!("\"index\":{},\"delta\":{delta}", self.closed);
        self.event("content_block_delta", &fields);
    }

    fn close(&mut self) {
        let Some(block) = self.open else {
            return;
        };
        if block == Block::Thinking {
            self.delta("signature_delta", "signature", SIGNATURE);
        }
        self.open = None;
        let fields = format!("\"index\":{}", self.closed);
        self.event("content_block_stop", &fields);
        self.closed += 1;
    }

    fn take_call(&mut self, place: usize, call: CallDelta) {
        let index = call.index.unwrap_or(place);
        let function = call.function.unwrap_or_default();
        let more = function.arguments.unwrap_or_default();
        let block = Block::Call(index);
        if self.open != Some(block) {
            if self.last_call.is_some_and(|last| index <= last) {
                // Its block is closed.
                if !more.is_empty() {
                    self.fail("the engine continued a tool call behind the next one");
                }
                return;
            }
            self.last_call = Some(index);
            let content = self.call(index, call.id, function.name, "{}");
            self.open(block, &content);
        }
        if !more.is_empty() {
            self.delta("input_json_delta", "partial_json", &more);
        }
    }

    /// The block of a call.
    fn call(&self, index: usize, id: Option<String>, name: Option<String>, input: &str) -> String {
        let own = || format!("toolu_{}_{index}", self.name);
        let id = json!(id.filter(|id| !id.is_empty()).unwrap_or_else(own));
        let name = json!(name.unwrap_or_default());
        format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{input}}}"#)
    }

    fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.begin();
        self.close();
        let (reason, sequence) = (self.stop_reason(), self.stop_sequence());
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        let fields = format!("\"delta\":{delta},\"usage\":{}", self.usage());
        self.event("message_delta", &fields);
        self.event("message_stop", "");
        self.is_over = true;
    }

    fn fail(&mut self, message: &str) {
        let error = ErrorBody::new(ErrorCode::EngineStreamBroken, message);
        self.fail_with(&error.to_event(Endpoint::Messages));
    }

    fn fail_with(&mut self, event: &[u8]) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.out.extend_from_slice(event);
        }
    }

    /// An event of this type. `fields` are the rest of it, as JSON without braces.
    fn event(&mut self, kind: &str, fields: &str) {
        if self.is_over {
            return;
        }
        let comma = if fields.is_empty() { "" } else { "," };
        let event = format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{comma}{fields}}}\n\n");
        self.out.extend_from_slice(event.as_bytes());
    }

    fn stop_reason(&self) -> &'static str {
        match self.finish.as_deref() {
            Some("length" | "abort") => "max_tokens",
            Some("content_filter") => "refusal",
            // Some engines do not say that the model has called a tool.
            _ if self.last_call.is_some() => "tool_use",
            _ if self.stop.is_some() => "stop_sequence",
            _ => "end_turn",
        }
    }

    fn stop_sequence(&self) -> Option<&str> {
        let stop = self.stop.as_deref();
        stop.filter(|_| self.stop_reason() == "stop_sequence")
    }

    /// Usage in the form of the API, which counts the cached part of a prompt separately.
    fn usage(&self) -> Value {
        let usage = self.usage.unwrap_or_default();
        let cached = usage
            .prompt_tokens_details
            .unwrap_or_default()
            .cached_tokens;
        let cached = cached.unwrap_or(0);
        json!({
            "input_tokens": usage.prompt_tokens.unwrap_or(0).saturating_sub(cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage.completion_tokens.unwrap_or(0),
        })
    }

    fn message(&self, content: &str, is_over: bool) -> String {
        let id = json!(format!("msg_{}", self.name));
        let reason = json!(is_over.then(|| self.stop_reason()));
        let sequence = json!(self.stop_sequence().filter(|_| is_over));
        let (model, usage) = (json!(self.model), self.usage());
        format!(
            r#"{{"id":{id},"type":"message","role":"assistant","model":{model},"content":[{content}],"stop_reason":{reason},"stop_sequence":{sequence},"usage":{usage}}}"#
        )
    }
}

impl ChatTranslator for MessageBuilder {
    fn take(&mut self, event: &[u8]) -> Vec<u8> {
        if self.is_over {
            return Vec::new();
        }
        if event == b"[DONE]" {
            self.end();
            return std::mem::take(&mut self.out);
        }
        match serde_json::from_slice::<Chunk>(event) {
            Ok(Chunk {
                error: Some(error), ..
            }) => self.fail_with(&event_of_answer(
                Endpoint::Messages,
                status_of(&error),
                event,
            )),
            Ok(chunk) => self.take_chunk(chunk),
            Err(error) => self.fail(&format!("the engine's answer is no chat: {error}")),
        }
        std::mem::take(&mut self.out)
    }

    fn finish(&mut self) -> Vec<u8> {
        if self.finish.is_some() {
            self.end();
        } else {
            self.fail("the engine ended its stream in the middle");
        }
        std::mem::take(&mut self.out)
    }

    fn whole(mut self: Box<Self>, body: &[u8]) -> Option<Vec<u8>> {
        let mut chunk: Chunk = serde_json::from_slice(body).ok()?;
        if chunk.error.is_some() {
            return None;
        }
        self.note_head(&mut chunk);
        let mut choices = chunk.choices?.into_iter();
        let mut choice = choices.find(|choice| choice.index.unwrap_or(0) == 0)?;
        self.note_end(&mut choice);
        let mut said = choice.message.unwrap_or_default();
        let mut blocks = Vec::new();
        if let Some(text) = said.take_reasoning() {
            let thinking = json!({"type": "thinking", "thinking": text, "signature": SIGNATURE});
            blocks.push(thinking.to_string());
        }
        if let Some(text) = said.take_text() {
            blocks.push(json!({"type": "text", "text": text}).to_string());
        }
        for (place, call) in said.tool_calls.into_iter().flatten().enumerate() {
            let function = call.function.unwrap_or_default();
            let arguments = function.arguments.unwrap_or_default();
            let input = object(&arguments).unwrap_or("{}");
            blocks.push(self.call(place, call.id, function.name, input));
            self.last_call = Some(place);
        }
        Some(self.message(&blocks.join(","), true).into_bytes())
    }

    fn bytes(&self) -> u64 {
        0
    }
}

/// The arguments of a call as they are written; `None` if the model wrote no whole object.
fn object(arguments: &str) -> Option<&str> {
    let json: &RawValue = serde_json::from_str(arguments).ok()?;
    Some(json.get()).filter(|json| json.starts_with('{'))
}

/// The status that an engine's error names.
fn status_of(error: &RawValue) -> u16 {
    #[derive(Deserialize)]
    struct Coded {
        code: u16,
    }
    let code = serde_json::from_str::<Coded>(error.get()).map(|error| error.code);
    let code = code.ok().filter(|code| (400..600).contains(code));
    code.unwrap_or(STATUS_OTHERWISE)
}
