//! Short conversations that end like a long one, to be rendered in its place.

use super::conversation::Conversation;
use serde_json::{Map, Value, json};

/// Fields of a chat that its template depends on.
const FIELDS: [&str; 5] = [
    "model",
    "tools",
    "tool_choice",
    "chat_template_kwargs",
    "reasoning_effort",
];

/// Requests to `/tokenize`.
#[derive(Debug)]
pub struct StandIns {
    /// What stands before the answer.
    pub opening: Vec<u8>,
    /// The answer and the new messages, the first with another text.
    pub probe: Vec<u8>,
    /// The answer and the new messages.
    pub whole: Vec<u8>,
}

impl Conversation {
    /// The stand-ins of a request that continues an answer; `None` if no message follows one.
    pub fn stand_ins(&self) -> Option<StandIns> {
        let (before, last) = self.messages().split_at(self.answer_at()?);
        let (answer, new) = last.split_first()?;
        let opening = opening_of(before);
        let mut said = json!({"role": "assistant", "content": ""});
        if let Some(calls) = answer.get("tool_calls").filter(|calls| !calls.is_null()) {
            said["tool_calls"] = calls.clone();
        }
        let whole = [&opening[..], &[said], new].concat();
        let mut probe = whole.clone();
        probe[opening.len()..].iter_mut().for_each(rename_calls);
        let first = probe.get_mut(opening.len() + 1)?.as_object_mut()?;
        let text = first
            .get("content")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let other = if text.starts_with('x') { "y" } else { "x" };
        first.insert("content".into(), other.into());
        Some(StandIns {
            probe: self.tokenize(&probe, Some(true)),
            whole: self.tokenize(&whole, Some(true)),
            opening: self.tokenize(&opening, Some(false)),
        })
    }

    /// The request to `/tokenize` for all of this.
    pub fn as_tokenize(&self) -> Vec<u8> {
        self.tokenize(self.messages(), None)
    }

    fn tokenize(&self, messages: &[Value], opens: Option<bool>) -> Vec<u8> {
        let own = FIELDS
            .iter()
            .filter_map(|name| self.request.get_key_value(*name));
        let own = own.map(|(name, value)| (name.clone(), value.clone()));
        let mut body: Map<String, Value> = own.collect();
        body.insert("messages".into(), messages.into());
        if let Some(opens) = opens {
            body.insert("add_generation_prompt".into(), opens.into());
        }
        Value::from(body).to_string().into_bytes()
    }
}

/// A message of the system, if there is one, and one of the user.
fn opening_of(before: &[Value]) -> Vec<Value> {
    let role = before.first().map(|first| &first["role"]);
    let role = role.filter(|role| *role == "system" || *role == "developer");
    let system = role.map(|role| json!({"role": role, "content": "x"}));
    let user = json!({"role": "user", "content": "x"});
    system.into_iter().chain([user]).collect()
}

/// Other ids for the calls. If the template writes them, they show what the engine sampled only if
/// its parser kept them, so the answer must not seem equal.
fn rename_calls(message: &mut Value) {
    let rename = |id: Option<&mut Value>| {
        if let Some(Value::String(text)) = id {
            text.insert(0, 'x');
        }
    };
    rename(message.get_mut("tool_call_id"));
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        rename(call.get_mut("id"));
    }
}
