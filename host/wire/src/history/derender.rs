//! vLLM's paths around `/inference/v1/generate`: the request that `/v1/chat/completions/render` makes
//! of a chat, and the answer that `/v1/chat/completions/derender` makes of tokens.

use super::as_sent::AsSent;
use serde_json::{Map, Value, json};

/// A request to `/inference/v1/generate`.
#[derive(Debug)]
pub struct Generation {
    request: Map<String, Value>,
    /// The ids of the chat's own prompt.
    pub sent: Vec<i32>,
}

impl Generation {
    /// Reads the answer of `/v1/chat/completions/render`.
    ///
    /// # Errors
    /// It is something else, or its prompt has more than tokens.
    pub fn parse(rendered: &[u8]) -> Result<Self, AsSent> {
        let mut request: Map<String, Value> =
            serde_json::from_slice(rendered).map_err(|_| AsSent::Tokenize)?;
        let sent = request.remove("token_ids").unwrap_or_default();
        let sent: Vec<i32> = serde_json::from_value(sent).map_err(|_| AsSent::Tokenize)?;
        if request
            .get("features")
            .is_some_and(|media| !media.is_null())
        {
            return Err(AsSent::Media);
        }
        Ok(Self { request, sent })
    }

    /// Its body with this prompt; prompt and answer have at most `tokens_max` tokens.
    ///
    /// # Errors
    /// There is no room for an answer.
    pub fn body(&self, prompt: &[i32], tokens_max: usize) -> Result<Vec<u8>, AsSent> {
        let room = tokens_max.saturating_sub(prompt.len());
        if room == 0 {
            return Err(AsSent::Length);
        }
        let mut request = self.request.clone();
        // The gateway may set the first two, and a later field wins.
        let is_unset = |value: &Value| value.is_null() || *value == 0;
        request.retain(|name, value| match name.as_str() {
            "priority" | "cache_salt" => !is_unset(value),
            "token_offsets" | "stream_options" => false,
            _ => true,
        });
        request.insert("stream".into(), false.into());
        request.insert("token_ids".into(), prompt.into());
        let sampling = request.get_mut("sampling_params");
        let sampling = sampling
            .and_then(Value::as_object_mut)
            .ok_or(AsSent::Tokenize)?;
        let most = sampling.get("max_tokens").and_then(Value::as_u64);
        let most = most.map_or(room, |most| room.min(most as usize));
        sampling.insert("max_tokens".into(), most.into());
        if sampling.get("logprobs").is_none_or(Value::is_null) {
            sampling.insert("logprobs".into(), 0.into());
        }
        Ok(Value::from(request).to_string().into_bytes())
    }
}

/// How an answer of `/inference/v1/generate` becomes one to a chat.
#[derive(Debug, PartialEq)]
pub enum Derender {
    /// By this request to `/v1/chat/completions/derender`.
    Ask(Vec<u8>),
    /// As this: it has nothing but the token at which it stopped.
    Empty(Vec<u8>),
}

impl Derender {
    /// Of an answer to this chat; `None` if it is no such answer. Parsers see the prompt of the chat,
    /// as they do without token ids.
    pub fn of(chat: &[u8], sent: &[i32], generated: &[u8]) -> Option<Self> {
        let mut generated: Map<String, Value> = serde_json::from_slice(generated).ok()?;
        let chat: Map<String, Value> = serde_json::from_slice(chat).ok()?;
        let [choice] = generated.get_mut("choices")?.as_array_mut()?.as_mut_slice() else {
            return None;
        };
        let choice = choice.as_object_mut()?;
        choice.insert("logprobs".into(), Value::Null);
        // The engine does not make text of the token at which it stops.
        let is_stopped = choice.get("finish_reason")? == "stop";
        let tokens = choice.get_mut("token_ids")?.as_array_mut()?;
        if is_stopped {
            tokens.pop()?;
        }
        let model = chat.get("model");
        if tokens.is_empty() {
            let empty = json!({"index": 0, "finish_reason": choice.get("finish_reason"),
                "message": {"role": "assistant", "content": ""}});
            let empty = json!({"id": generated.get("request_id"), "object": "chat.completion",
                "created": generated.get("created"), "model": model, "choices": [empty]});
            return Some(Self::Empty(empty.to_string().into_bytes()));
        }
        let usage = generated.get("usage");
        let prompt_tokens = usage.and_then(|usage| usage.get("prompt_tokens")).cloned();
        generated.insert("prompt_token_ids".into(), sent.into());
        let request = json!({"model": model, "generate_response": generated,
            "prompt_tokens": prompt_tokens, "prompt_token_ids": sent, "chat_request": chat});
        Some(Self::Ask(request.to_string().into_bytes()))
    }
}

/// The chat completion with tokens that vLLM would give for this prompt: `derendered`, with the
/// tokens of `generated`. `None` if one of them is something else.
pub fn chat_answer(derendered: &[u8], generated: &[u8], prompt: &[i32]) -> Option<Vec<u8>> {
    let mut answer: Map<String, Value> = serde_json::from_slice(derendered).ok()?;
    let mut generated: Map<String, Value> = serde_json::from_slice(generated).ok()?;
    let [choice] = answer.get_mut("choices")?.as_array_mut()?.as_mut_slice() else {
        return None;
    };
    let choice = choice.as_object_mut()?;
    let calls = choice
        .get("message")?
        .get("tool_calls")
        .and_then(Value::as_array);
    if calls.is_some_and(|calls| !calls.is_empty()) {
        choice.insert("finish_reason".into(), "tool_calls".into());
    }
    let tokens = generated.get_mut("choices")?.get_mut(0)?.as_object_mut()?;
    for name in ["token_ids", "logprobs", "weight_versions", "stop_reason"] {
        choice.extend(tokens.remove_entry(name));
    }
    answer.extend(generated.remove_entry("usage"));
    answer.insert("prompt_token_ids".into(), prompt.into());
    Some(Value::from(answer).to_string().into_bytes())
}
