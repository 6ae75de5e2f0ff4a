//! Translates a chat completion to a response of `/v1/responses`, event by event or as a whole.

use super::ResponsesRequest;
use super::chat::ChatForm;
use super::events::{Events, Place};
use super::item::{Item, Kind, list};
use super::tools::ToolNames;
use crate::chat::{CallDelta, ChatTranslator, ChatUsage, Choice, Chunk, Delta};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Fields of a request that its response repeats, with their defaults.
const REPEATED: [(&str, &str); 18] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("service_tier", "\"default\""),
    ("temperature", "1.0"),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
];

/// Fields of a response that do not come from the engine.
#[derive(Clone, Debug)]
pub struct AnswerHead {
    /// A unique part of all its ids, letters and digits.
    pub name: String,
    /// When it was started, in seconds since 1970.
    pub created_s: u64,
    /// Whether it can be continued by its id.
    pub is_stored: bool,
    /// The response that it continues.
    pub previous: Option<String>,
}

/// Builds a response from an engine's chat completion.
#[derive(Debug)]
pub struct ResponseBuilder {
    head: AnswerHead,
    /// Fields that are repeated, as JSON without braces.
    repeated: String,
    model: String,
    names: ToolNames,
    sends_reasoning_back: bool,
    events: Events,
    is_begun: bool,
    is_over: bool,
    items: Vec<Item>,
    /// The text that is being written.
    open: Option<usize>,
    /// Tool calls by their number in the chat.
    calls: BTreeMap<usize, usize>,
    finish: Option<String>,
    usage: Option<ChatUsage>,
    error: Option<Value>,
    bytes: u64,
}

impl ResponseBuilder {
    /// A builder for the response to `request`, which was sent to the engine as `chat`.
    pub fn new(request: &ResponsesRequest, chat: &ChatForm, head: AnswerHead) -> Self {
        let given = |name: &str| request.fields.get(name).map(|value| value.get());
        let repeated = REPEATED.map(|(name, otherwise)| {
            let previous = head
                .previous
                .as_ref()
                .filter(|_| name == "previous_response_id");
            match previous {
                Some(previous) => format!("\"{name}\":{}", json!(previous)),
                None => format!("\"{name}\":{}", given(name).unwrap_or(otherwise)),
            }
        });
        let model = given("model").and_then(|model| serde_json::from_str(model).ok());
        Self {
            repeated: repeated.join(","),
            model: model.unwrap_or_default(),
            names: chat.names.clone(),
            sends_reasoning_back: request.wants("reasoning.encrypted_content"),
            events: Events::new(request.streams()),
            head,
            is_begun: false,
            is_over: false,
            items: Vec::new(),
            open: None,
            calls: BTreeMap::new(),
            finish: None,
            usage: None,
            error: None,
            bytes: 0,
        }
    }

    /// Processes an event of the engine's stream; returns the events for the client.
    pub fn take(&mut self, event: &[u8]) -> Vec<u8> {
        if self.is_over {
            return Vec::new();
        }
        if event == b"[DONE]" {
            self.end();
            return self.events.take();
        }
        match serde_json::from_slice(event) {
            Ok(chunk) => self.take_chunk(chunk),
            Err(error) => self.fail(&format!("the engine's answer is no chat: {error}")),
        }
        self.events.take()
    }

    /// Handles the end of the engine's stream; returns the final events for the client.
    pub fn finish(&mut self) -> Vec<u8> {
        if self.finish.is_some() {
            self.end();
        } else {
            self.fail("the engine ended its stream in the middle");
        }
        self.events.take()
    }

    /// The response for a whole chat completion; `None` if the body is not one.
    pub fn whole(mut self, body: &[u8]) -> Option<Vec<u8>> {
        let chunk: Chunk = serde_json::from_slice(body).ok()?;
        chunk.choices.as_ref().filter(|all| !all.is_empty())?;
        self.take_chunk(chunk);
        self.finish.get_or_insert_default();
        self.end();
        Some(self.json(self.status()).into_bytes())
    }

    /// Bytes of buffered text.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn take_chunk(&mut self, chunk: Chunk) {
        if let Some(error) = chunk.error {
            let error = serde_json::from_str::<Value>(error.get()).unwrap_or_default();
            let message = error["message"].as_str();
            return self.fail(message.unwrap_or("the engine failed"));
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model = model;
        }
        self.begin();
        self.usage = chunk.usage.or(self.usage);
        for choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) == 0 {
                self.take_choice(choice);
            }
        }
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true) {
            let response = self.json("in_progress");
            self.events
                .response("response.created", || response.clone());
            self.events.response("response.in_progress", || response);
        }
    }

    fn take_choice(&mut self, choice: Choice) {
        let logprobs = choice.logprobs.and_then(|all| all.content);
        let delta = choice.delta.or(choice.message).unwrap_or_default();
        self.take_delta(delta, logprobs.unwrap_or_default());
        self.finish = choice.finish_reason.or(self.finish.take());
    }

    fn take_delta(&mut self, mut delta: Delta, logprobs: Vec<Box<RawValue>>) {
        if let Some(more) = delta.take_reasoning() {
            let is_sent_back = self.sends_reasoning_back;
            let at = self.text_item(Kind::Reasoning { is_sent_back });
            self.write(at, &more, Vec::new());
        }
        if let Some(more) = delta.take_text() {
            let logprobs_so_far = Vec::new();
            let at = self.text_item(Kind::Message {
                logprobs: logprobs_so_far,
            });
            self.write(at, &more, logprobs);
        }
        for (place, call) in delta.tool_calls.into_iter().flatten().enumerate() {
            self.take_call(place, call);
        }
    }

    /// The item of this kind that is being written, or a new one.
    fn text_item(&mut self, kind: Kind) -> usize {
        if let Some(at) = self.open {
            let open = std::mem::discriminant(&self.items[at].kind);
            if open == std::mem::discriminant(&kind) {
                return at;
            }
            self.close(at);
        }
        let prefix = match &kind {
            Kind::Reasoning { .. } => "rs",
            _ => "msg",
        };
        let at = self.add(prefix, kind);
        self.open = Some(at);
        let item = &self.items[at];
        let part = item.part();
        let place = Place {
            index: at,
            id: &item.id,
        };
        self.events
            .part("response.content_part.added", place, "part", &part);
        at
    }

    fn add(&mut self, prefix: &str, kind: Kind) -> usize {
        let at = self.items.len();
        let item = Item {
            id: format!("{prefix}_{}_{at}", self.head.name),
            kind,
            text: String::new(),
            is_done: false,
        };
        self.events
            .item("response.output_item.added", at, || item.json(true));
        self.items.push(item);
        at
    }

    fn write(&mut self, at: usize, more: &str, fresh: Vec<Box<RawValue>>) {
        self.bytes += more.len() as u64;
        let item = &mut self.items[at];
        item.text.push_str(more);
        let delta = json!(more);
        let place = Place {
            index: at,
            id: &item.id,
        };
        if let Kind::Message { logprobs } = &mut item.kind {
            let delta = format!("{delta},\"logprobs\":{}", list(&fresh));
            self.events
                .part("response.output_text.delta", place, "delta", &delta);
            self.bytes += fresh.iter().map(|one| one.get().len() as u64).sum::<u64>();
            logprobs.extend(fresh);
        } else {
            let kind = "response.reasoning_text.delta";
            self.events.part(kind, place, "delta", &delta.to_string());
        }
    }

    fn begin_call(&mut self, index: usize, id: Option<String>, name: &str) -> usize {
        if let Some(open) = self.open.take() {
            self.close(open);
        }
        let tool = self.names.of(name);
        let prefix = if tool.is_custom { "ctc" } else { "fc" };
        let own = || format!("call_{}_{index}", self.head.name);
        let call_id = id.filter(|id| !id.is_empty()).unwrap_or_else(own);
        let at = self.add(prefix, Kind::Call { call_id, tool });
        self.calls.insert(index, at);
        at
    }

    fn take_call(&mut self, place: usize, call: CallDelta) {
        let index = call.index.unwrap_or(place);
        let function = call.function.unwrap_or_default();
        let known = self.calls.get(&index).copied();
        let at = known.unwrap_or_else(|| {
            let name = function.name.as_deref().unwrap_or_default();
            self.begin_call(index, call.id, name)
        });
        let more = function.arguments.unwrap_or_default();
        self.bytes += more.len() as u64;
        let item = &mut self.items[at];
        item.text.push_str(&more);
        let is_custom = matches!(&item.kind, Kind::Call { tool, .. } if tool.is_custom);
        if !is_custom && !more.is_empty() {
            let kind = "response.function_call_arguments.delta";
            let place = Place {
                index: at,
                id: &item.id,
            };
            self.events.arguments(kind, place, "delta", &more);
        }
    }

    /// Ends an item.
    fn close(&mut self, at: usize) {
        let is_whole = self.is_whole();
        let item = &mut self.items[at];
        if std::mem::replace(&mut item.is_done, true) {
            return;
        }
        let place = Place {
            index: at,
            id: &item.id,
        };
        let (text, part) = (json!(item.text), item.part());
        let events = &mut self.events;
        match &item.kind {
            Kind::Message { logprobs } => {
                let text = format!("{text},\"logprobs\":{}", list(logprobs));
                events.part("response.output_text.done", place, "text", &text);
                events.part("response.content_part.done", place, "part", &part);
            }
            Kind::Reasoning { .. } => {
                let text = text.to_string();
                events.part("response.reasoning_text.done", place, "text", &text);
                events.part("response.content_part.done", place, "part", &part);
            }
            Kind::Call { .. } => {
                if let Some(input) = item.free_text() {
                    let kind = "response.custom_tool_call_input";
                    events.arguments(&format!("{kind}.delta"), place, "delta", &input);
                    events.arguments(&format!("{kind}.done"), place, "input", &input);
                } else {
                    let kind = "response.function_call_arguments.done";
                    events.arguments(kind, place, "arguments", &item.text);
                }
            }
        }
        events.item("response.output_item.done", at, || item.json(is_whole));
    }

    fn close_all(&mut self) {
        self.open = None;
        for at in 0..self.items.len() {
            self.close(at);
        }
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin();
        self.close_all();
        let status = self.status();
        let response = self.json(status);
        self.events
            .response(&format!("response.{status}"), || response);
    }

    fn fail(&mut self, message: &str) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.error = Some(json!({"code": "server_error", "message": message}));
        self.begin();
        let response = self.json("failed");
        self.events.response("response.failed", || response);
    }

    fn is_whole(&self) -> bool {
        !matches!(
            self.finish.as_deref(),
            Some("length" | "content_filter" | "abort")
        )
    }

    fn status(&self) -> &'static str {
        if self.is_whole() {
            "completed"
        } else {
            "incomplete"
        }
    }

    fn json(&self, status: &str) -> String {
        let is_whole = self.is_whole();
        let items: Vec<String> = self.items.iter().map(|item| item.json(is_whole)).collect();
        let reason = self.finish.as_deref().filter(|_| !is_whole);
        let reason = reason.map(|reason| match reason {
            "length" => "max_output_tokens",
            other => other,
        });
        let details = json!(reason.map(|reason| json!({"reason": reason})));
        let id = json!(format!("resp_{}", self.head.name));
        let (error, model) = (json!(self.error), json!(self.model));
        let usage = self.usage.map_or_else(|| "null".into(), usage_json);
        let (created_s, is_stored) = (self.head.created_s, self.head.is_stored);
        format!(
            r#"{{"id":{id},"object":"response","created_at":{created_s},"status":"{status}","background":false,"error":{error},"incomplete_details":{details},"model":{model},"output":[{}],"store":{is_stored},{},"usage":{usage}}}"#,
            items.join(","),
            self.repeated,
        )
    }
}

impl ChatTranslator for ResponseBuilder {
    fn take(&mut self, event: &[u8]) -> Vec<u8> {
        ResponseBuilder::take(self, event)
    }

    fn finish(&mut self) -> Vec<u8> {
        ResponseBuilder::finish(self)
    }

    fn whole(self: Box<Self>, body: &[u8]) -> Option<Vec<u8>> {
        ResponseBuilder::whole(*self, body)
    }

    fn bytes(&self) -> u64 {
        ResponseBuilder::bytes(self)
    }
}

/// Usage in the form of `/v1/responses`.
fn usage_json(usage: ChatUsage) -> String {
    let input = usage.prompt_tokens.unwrap_or(0);
    let output = usage.completion_tokens.unwrap_or(0);
    let cached = usage
        .prompt_tokens_details
        .unwrap_or_default()
        .cached_tokens;
    let details = usage.completion_tokens_details.unwrap_or_default();
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached.unwrap_or(0)},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": details.reasoning_tokens.unwrap_or(0)},
        "total_tokens": input.saturating_add(output),
    })
    .to_string()
}
