//! Requests as chats, and chats as answers.

mod answers;
mod requests;

use super::*;
use serde_json::Value;

fn request(body: &Value) -> MessagesRequest {
    MessagesRequest::parse(body.to_string().as_bytes()).expect("a request")
}

fn chat(body: &Value) -> Value {
    let chat = request(body).to_chat().expect("a chat");
    serde_json::from_slice(&chat).expect("JSON")
}

/// A request with these messages.
#[expect(clippy::needless_pass_by_value, reason = "made for the call")]
fn with(messages: Value) -> Value {
    json!({"model": "m", "max_tokens": 9, "messages": messages})
}
