//! Errors within a stream whose status is already sent, in the form of each API.

use crate::endpoint::Endpoint;
use crate::error::ErrorBody;
use serde_json::{Value, json};

/// The longest error message of an engine that is passed on, in characters.
const WORDS_CHARS_MAX: usize = 512;

impl ErrorBody {
    /// The error as an event of a stream of this endpoint.
    pub fn to_event(&self, endpoint: Endpoint) -> Vec<u8> {
        let envelope = serde_json::from_slice(&self.to_json()).unwrap_or_default();
        event(endpoint, self.code.status(), envelope)
    }
}

/// An engine's error response as an event of a stream of this endpoint: its own error object if it
/// sent one, else its message.
pub fn event_of_answer(endpoint: Endpoint, status: u16, body: &[u8]) -> Vec<u8> {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    if told["error"].is_object() {
        return event(endpoint, status, told);
    }
    let words = words_of(body);
    let message = if words.is_empty() {
        format!("the engine answered {status}")
    } else {
        words
    };
    let error = json!({"message": message, "type": kind_of(status), "code": status, "param": null});
    event(endpoint, status, json!({"error": error}))
}

/// The message of an engine's error response, without control characters and cut to a limit.
pub fn words_of(body: &[u8]) -> String {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    let places = [
        &told["error"]["message"],
        &told["message"],
        &told["error"],
        &told["detail"],
    ];
    let text = places.iter().find_map(|place| place.as_str());
    let raw = || String::from_utf8_lossy(&body[..body.len().min(4 * WORDS_CHARS_MAX)]);
    let words = text.map_or_else(raw, Into::into);
    let shown = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    let shown: String = shown.take(WORDS_CHARS_MAX).collect();
    shown.trim().to_owned()
}

/// `envelope` has OpenAI's form, or already Anthropic's.
fn event(endpoint: Endpoint, status: u16, envelope: Value) -> Vec<u8> {
    let (name, envelope) = match endpoint {
        Endpoint::Messages => ("event: error\n", as_message_error(status, envelope)),
        Endpoint::Responses => ("event: error\n", as_response_error(&envelope)),
        _ => ("", envelope),
    };
    format!("{name}data: {envelope}\n\n").into_bytes()
}

/// Converts to the form of Anthropic's streams.
fn as_message_error(status: u16, mut envelope: Value) -> Value {
    if envelope["type"] == "error" {
        return envelope;
    }
    let mut error = envelope["error"].take();
    let kind = error["type"].as_str().unwrap_or_default();
    if !ANTHROPIC_KINDS.contains(&kind) {
        error["type"] = kind_of(status).into();
    }
    json!({"type": "error", "error": error})
}

/// Converts to the form of `/v1/responses` streams; some clients read the envelope instead.
fn as_response_error(envelope: &Value) -> Value {
    let error = &envelope["error"];
    json!({
        "type": "error",
        "code": error["code"],
        "message": error["message"],
        "param": error["param"],
        "sequence_number": 0,
        "error": error,
    })
}

/// The error types of Anthropic's API.
const ANTHROPIC_KINDS: [&str; 8] = [
    "api_error",
    "authentication_error",
    "invalid_request_error",
    "not_found_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "request_too_large",
];

const fn kind_of(status: u16) -> &'static str {
    match status {
        404 => "not_found_error",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn text(event: Vec<u8>) -> String {
        String::from_utf8(event).expect("text")
    }

    #[test]
    fn each_api_has_its_form_of_an_error() {
        let error = ErrorBody::new(ErrorCode::EngineStreamBroken, "it\nbroke");
        let named = [Endpoint::Messages, Endpoint::Responses];
        for endpoint in Endpoint::ALL.into_iter().filter(|e| !named.contains(e)) {
            let event = text(error.to_event(endpoint));
            let data = event.strip_prefix("data: ").expect("an event");
            let told: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(told["error"]["code"], "engine_stream_broken", "{event}");
            assert!(event.ends_with("}\n\n"), "{event}");
        }
        let event = text(error.to_event(Endpoint::Messages));
        let data = event
            .strip_prefix("event: error\ndata: ")
            .expect("an event");
        let told: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(
            (&told["type"], &told["error"]["type"]),
            (&json!("error"), &json!("api_error"))
        );
        assert_eq!(told["error"]["message"], "it\nbroke");
        let event = text(error.to_event(Endpoint::Responses));
        let data = event
            .strip_prefix("event: error\ndata: ")
            .expect("an event");
        let told: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(told["type"], "error");
        assert_eq!(told["code"], "engine_stream_broken");
        assert_eq!(told["error"]["message"], told["message"]);
    }

    #[test]
    fn an_engines_words_are_passed_on() {
        let busy = br#"{"error":{"message":"The request queue is full.","type":"ServiceUnavailable","code":503}}"#;
        let event = text(event_of_answer(Endpoint::ChatCompletions, 503, busy));
        assert!(
            event.contains("ServiceUnavailable") && event.contains("queue is full"),
            "{event}"
        );
        let event = text(event_of_answer(Endpoint::Messages, 503, busy));
        assert!(
            event.contains("overloaded_error") && event.contains("queue is full"),
            "{event}"
        );
        let own = br#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"},"request_id":"r"}"#;
        let event = text(event_of_answer(Endpoint::Messages, 429, own));
        assert!(event.contains("\"request_id\":\"r\""), "{event}");
        let page = b"<html>\r\n\x1b[31mno healthy upstream</html>";
        let event = text(event_of_answer(Endpoint::Completions, 503, page));
        assert!(
            event.contains("no healthy upstream") && !event.contains('\u{1b}'),
            "{event}"
        );
        assert_eq!(event.matches('\n').count(), 2, "{event}");
        assert_eq!(words_of(br#"{"detail":"Not Found"}"#), "Not Found");
        assert_eq!(words_of(br#"{"object":"error","message":"m"}"#), "m");
        assert_eq!(
            words_of("é".repeat(9_999).as_bytes()).chars().count(),
            WORDS_CHARS_MAX
        );
    }
}
