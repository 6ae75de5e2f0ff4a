//! Converts a chat's answers to the Messages API.

use super::super::translation::Translation;
use serde_json::{Value, json};

/// Builds an answer, event by event or as one body.
#[derive(Default)]
pub(in super::super) struct MessageAnswer {
    is_begun: bool,
    is_over: bool,
    /// Index of the open block, and whether it is a tool call.
    open: Option<(usize, bool)>,
    blocks: usize,
    stop_reason: Option<&'static str>,
    usage: Value,
}

impl MessageAnswer {
    fn event(out: &mut Vec<u8>, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        out.extend_from_slice(format!("event: {kind}\ndata: {fields}\n\n").as_bytes());
    }

    fn begin(&mut self, out: &mut Vec<u8>, chunk: &Value) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let mut usage = usage_of(&self.usage);
        usage["output_tokens"] = 1.into();
        let message = message(chunk, &[], None, &usage);
        Self::event(out, "message_start", json!({"message": message}));
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some((at, _)) = self.open.take() {
            Self::event(out, "content_block_stop", json!({"index": at}));
        }
    }

    /// Opens a block, unless one of the same kind is open.
    fn open(&mut self, out: &mut Vec<u8>, is_call: bool, block: &Value) -> usize {
        if let Some((at, open_is_call)) = self.open
            && open_is_call == is_call
            && (!is_call || block["id"].is_null())
        {
            return at;
        }
        self.close(out);
        let at = self.blocks;
        self.blocks += 1;
        self.open = Some((at, is_call));
        let fields = json!({"index": at, "content_block": block});
        Self::event(out, "content_block_start", fields);
        at
    }

    fn take_choice(&mut self, out: &mut Vec<u8>, choice: &Value) {
        let delta = &choice["delta"];
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            let at = self.open(out, false, &json!({"type": "text", "text": ""}));
            let delta = json!({"type": "text_delta", "text": text});
            let fields = json!({"index": at, "delta": delta});
            Self::event(out, "content_block_delta", fields);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let at = self.open(
                out,
                true,
                &json!({
                    "type": "tool_use", "id": call["id"], "name": function["name"], "input": {},
                }),
            );
            let delta = json!({
                "type": "input_json_delta", "partial_json": function["arguments"],
            });
            let fields = json!({"index": at, "delta": delta});
            Self::event(out, "content_block_delta", fields);
        }
        self.stop_reason = stop_reason(choice).or(self.stop_reason);
    }
}

impl Translation for MessageAnswer {
    fn take(&mut self, event: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let Ok(chunk) = serde_json::from_slice::<Value>(event) else {
            return self.finish();
        };
        if !chunk["usage"].is_null() {
            self.usage = chunk["usage"].clone();
        }
        let choice = &chunk["choices"][0];
        let has_role_only = choice["delta"]["role"].is_string();
        if choice.is_object() && !has_role_only {
            self.begin(&mut out, &chunk);
            self.take_choice(&mut out, choice);
        }
        out
    }

    fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.stop_reason.is_none() || std::mem::replace(&mut self.is_over, true) {
            return out;
        }
        self.close(&mut out);
        let fields = json!({
            "delta": {"stop_reason": self.stop_reason, "stop_sequence": null},
            "usage": usage_of(&self.usage),
        });
        Self::event(&mut out, "message_delta", fields);
        Self::event(&mut out, "message_stop", json!({}));
        out
    }

    fn whole(self, body: &[u8]) -> Option<Vec<u8>> {
        let chat = serde_json::from_slice::<Value>(body).ok()?;
        let choice = &chat["choices"][0];
        let said = &choice["message"];
        let mut blocks = Vec::new();
        if let Some(text) = said["content"].as_str() {
            blocks.push(json!({"type": "text", "text": text}));
        }
        for call in said["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let input = function["arguments"].as_str().unwrap_or("{}");
            let input: Value = serde_json::from_str(input).unwrap_or_default();
            blocks.push(json!({
                "type": "tool_use", "id": call["id"], "name": function["name"], "input": input,
            }));
        }
        let usage = usage_of(&chat["usage"]);
        let whole = message(&chat, &blocks, stop_reason(choice), &usage);
        Some(whole.to_string().into_bytes())
    }
}

fn message(chat: &Value, blocks: &[Value], stop_reason: Option<&str>, usage: &Value) -> Value {
    let id = chat["id"].as_str().unwrap_or_default();
    let id = id.strip_prefix("chatcmpl-").unwrap_or(id);
    json!({
        "id": format!("msg_{id}"), "type": "message", "role": "assistant",
        "model": chat["model"], "content": blocks, "stop_reason": stop_reason,
        "stop_sequence": null, "usage": usage,
    })
}

fn stop_reason(choice: &Value) -> Option<&'static str> {
    match choice["finish_reason"].as_str()? {
        "length" => Some("max_tokens"),
        "tool_calls" => Some("tool_use"),
        _ => Some("end_turn"),
    }
}

/// Converts usage: Anthropic counts the cached part of a prompt separately.
fn usage_of(usage: &Value) -> Value {
    let prompt = usage["prompt_tokens"].as_u64().unwrap_or(0);
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    let cached = cached.unwrap_or(0);
    json!({
        "input_tokens": prompt.saturating_sub(cached),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage["completion_tokens"].as_u64().unwrap_or(0),
    })
}
