//! A non-streaming response that is fetched as a stream, so that it can be interrupted: without a
//! stream, partial output is only known to the engine.

use super::attempt::mark;
use super::continuation::{Continuation, body_of};
use super::counts::Counts;
use super::generate::Call;
use super::interruption::events;
use super::obstacles::{check, is_empty};
use super::refusal::{cut, too_large};
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use treadle_http::{InUse, error_response, refuse};
use treadle_model::EngineKind;
use treadle_wire::{Endpoint, ErrorBody, ErrorCode};

/// A request for a stream.
pub(super) struct StreamRequest {
    pub(super) body: Bytes,
    /// Which counts the client sees.
    pub(super) counts: Option<Counts>,
}

/// The request as one for a stream, if its response can be interrupted and reassembled.
pub(super) fn as_stream(call: &Call, engine: EngineKind) -> Option<StreamRequest> {
    let body = stream_of(call.endpoint, engine, call.head.stream, &call.body)?;
    Some(StreamRequest {
        body,
        counts: Some(Counts::shown()),
    })
}

/// The request for a stream, if nothing in it prevents continuation.
pub(super) fn continuable(call: &Call, engine: EngineKind) -> Option<StreamRequest> {
    let of = || Continuation::of(call.endpoint, engine, &call.body, &[], None);
    if !call.head.stream || of().is_err() {
        return None;
    }
    let mut request: Map<String, Value> = serde_json::from_slice(&call.body).ok()?;
    let counts = Counts::ask(&mut request, call.endpoint, engine);
    let body = match counts {
        Some(_) => body_of(&request, &call.body).ok()?,
        None => call.body.clone(),
    };
    Some(StreamRequest { body, counts })
}

fn stream_of(
    endpoint: Endpoint,
    engine: EngineKind,
    is_stream: bool,
    body: &[u8],
) -> Option<Bytes> {
    if is_stream || !matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Completions) {
        return None;
    }
    let mut request: Map<String, Value> = serde_json::from_slice(body).ok()?;
    check(&request).ok()?;
    if request.get("tools").is_some_and(|tools| !is_empty(tools)) {
        // Engines parse tool calls differently in streams.
        return None;
    }
    let ids_are_given = request.get("return_token_ids") == Some(&Value::Bool(true));
    let is_one = |prompt: &Value| match prompt {
        Value::String(_) => true,
        Value::Array(ids) => ids_are_given && ids.iter().all(Value::is_u64),
        _ => false,
    };
    if endpoint == Endpoint::Completions && !request.get("prompt").is_some_and(is_one) {
        return None;
    }
    request.insert("stream".into(), true.into());
    request.insert("stream_options".into(), json!({"include_usage": true}));
    Counts::ask(&mut request, endpoint, engine);
    body_of(&request, body).ok()
}

/// Assembles the response from the stream.
pub(super) async fn in_one_piece(call: &Call, stream: Response<Body>) -> Response<Body> {
    let mut pieces = Vec::new();
    let mut body = stream.into_body();
    let mut is_whole = true;
    let mut room = InUse::new([call.app.room.answers.clone()]);
    let mut left = call.app.answer_bytes_max;
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => {
                let less = left.checked_sub(data.len());
                let Some(less) = less.filter(|_| room.grow(data.len() as u64).is_ok()) else {
                    return refuse(ErrorCode::AnswerTooLarge, too_large(call));
                };
                left = less;
                pieces.push(data);
            }
            Ok(Err(_)) => {}
            Err(_) => is_whole = false,
        }
    }
    let events = events(&pieces);
    let whole = whole_of(call.endpoint, &events).filter(|_| is_whole);
    let Some(whole) = whole else {
        let mut errors = events.iter().rev().map(|event| &event["error"]);
        let error = errors.find(|error| error["message"].is_string());
        if error.is_some_and(|error| error["code"] == ErrorCode::MemberDropped.as_str()) {
            return error_response(&cut());
        }
        let cause = error.and_then(|error| error["message"].as_str());
        return broken(cause.unwrap_or("the engine's response is incomplete"));
    };
    let mut response = Response::new(Body::from(whole.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    mark(call, &mut response);
    response
}

/// Dropping the stream aborts the engine's request.
fn broken(cause: &str) -> Response<Body> {
    error_response(&ErrorBody::new(ErrorCode::EngineStreamBroken, cause))
}

/// Assembles the response; `None` if the events are incomplete.
fn whole_of(endpoint: Endpoint, events: &[Value]) -> Option<Value> {
    let (mut whole, mut choice) = (Map::new(), Map::new());
    let (mut message, mut text, mut ids) = (Map::new(), String::new(), None::<Vec<Value>>);
    for event in events.iter().filter_map(Value::as_object) {
        if event.contains_key("error") {
            return None;
        }
        overlay(&mut whole, event, &["choices", "object"]);
        let part = event.get("choices").and_then(|choices| choices.get(0));
        let Some(part) = part.and_then(Value::as_object) else {
            continue;
        };
        overlay(
            &mut choice,
            part,
            &["delta", "text", "token_ids", "logprobs"],
        );
        if let Some(logprobs) = part.get("logprobs") {
            append(choice.entry("logprobs").or_insert(Value::Null), logprobs);
        }
        text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
        if let Some(Value::Array(more)) = part.get("token_ids") {
            ids.get_or_insert_default().extend(more.iter().cloned());
        }
        if let Some(Value::Object(delta)) = part.get("delta") {
            extend(&mut message, delta);
        }
    }
    choice.get("finish_reason").filter(|end| !end.is_null())?;
    let object = if endpoint == Endpoint::ChatCompletions {
        message.entry("role").or_insert_with(|| json!("assistant"));
        message.entry("content").or_insert_with(|| json!(""));
        choice.insert("message".into(), Value::Object(message));
        "chat.completion"
    } else {
        choice.insert("text".into(), text.into());
        "text_completion"
    };
    if let Some(ids) = ids {
        choice.insert("token_ids".into(), ids.into());
    }
    whole.insert("object".into(), object.into());
    whole.insert("choices".into(), json!([choice]));
    Some(Value::Object(whole))
}

/// Takes over the content of a later event.
fn overlay(earlier: &mut Map<String, Value>, later: &Map<String, Value>, save: &[&str]) {
    for (name, value) in later {
        let is_new = !value.is_null() || !earlier.contains_key(name);
        if is_new && !save.contains(&name.as_str()) {
            earlier.insert(name.clone(), value.clone());
        }
    }
}

/// Appends the lists of log-probabilities to the earlier ones.
fn append(earlier: &mut Value, later: &Value) {
    match (earlier, later) {
        (Value::Array(earlier), Value::Array(later)) => earlier.extend(later.iter().cloned()),
        (Value::Object(earlier), Value::Object(later)) => {
            for (name, value) in later {
                append(earlier.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (earlier, later) => *earlier = later.clone(),
    }
}

/// Concatenates texts; other values are those of the last event.
fn extend(message: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (name, value) in delta {
        match (message.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(more)) if name != "role" => {
                text.push_str(more);
            }
            (Some(_), Value::Null) => {}
            _ => {
                message.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_one_for_a_stream_where_its_answer_can_be_put_together() {
        let chat = Endpoint::ChatCompletions;
        let stream = |endpoint, body: &Value| {
            let stream = stream_of(
                endpoint,
                EngineKind::Vllm,
                false,
                body.to_string().as_bytes(),
            )?;
            serde_json::from_slice::<Value>(&stream).ok()
        };
        let asked = stream(chat, &json!({"messages": [], "max_tokens": 5})).expect("it can");
        let options = json!({"include_usage": true, "continuous_usage_stats": true});
        let expected = json!({
            "messages": [], "max_tokens": 5, "stream": true, "stream_options": options,
        });
        assert_eq!(asked, expected);
        assert_eq!(stream(chat, &json!({"messages": [], "n": 2})), None);
        assert_eq!(stream(chat, &json!({"messages": [], "tools": [{}]})), None);
        let plain = Endpoint::Completions;
        assert!(stream(plain, &json!({"prompt": "a"})).is_some());
        assert_eq!(stream(plain, &json!({"prompt": ["a", "b"]})), None);
        assert_eq!(stream(plain, &json!({"prompt": [1, 2]})), None);
        assert!(stream(plain, &json!({"prompt": [1], "return_token_ids": true})).is_some());
        assert_eq!(stream_of(chat, EngineKind::Vllm, true, b"{}"), None);
        assert_eq!(
            stream_of(Endpoint::SglangGenerate, EngineKind::Sglang, false, b"{}"),
            None
        );
    }

    #[test]
    fn events_make_the_answer_that_they_are_of() {
        let event = |choice: Value| json!({"id": "c", "object": "x.chunk", "choices": [choice]});
        let events = [
            event(
                json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}),
            ),
            event(json!({"index": 0, "delta": {"content": "Hel"}, "finish_reason": null})),
            event(
                json!({"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop", "stop_reason": null}),
            ),
            json!({"id": "c", "object": "x.chunk", "choices": [], "usage": {"total_tokens": 7}}),
        ];
        let whole = json!({
            "id": "c", "object": "chat.completion", "usage": {"total_tokens": 7},
            "choices": [{
                "index": 0, "finish_reason": "stop", "stop_reason": null,
                "message": {"role": "assistant", "content": "Hello"},
            }],
        });
        let chat = Endpoint::ChatCompletions;
        assert_eq!(whole_of(chat, &events), Some(whole));
        assert_eq!(whole_of(chat, &events[..2]), None, "it has not ended");
        let texts = [
            event(json!({"index": 0, "text": "a", "token_ids": [1], "finish_reason": null})),
            event(json!({"index": 0, "text": "b", "token_ids": [2], "finish_reason": "length"})),
        ];
        let whole = whole_of(Endpoint::Completions, &texts).expect("it has ended");
        assert_eq!(whole["choices"][0]["text"], "ab");
        assert_eq!(whole["choices"][0]["token_ids"], json!([1, 2]));
        assert_eq!(whole["object"], "text_completion");
        let logprobs = |event: &Value, all: Value| {
            let mut event = event.clone();
            event["choices"][0]["logprobs"] = all;
            event
        };
        let chat_events = [
            logprobs(&events[0], Value::Null),
            logprobs(
                &events[1],
                json!({"content": [{"token": "Hel"}], "refusal": null}),
            ),
            logprobs(
                &events[2],
                json!({"content": [{"token": "lo"}], "refusal": null}),
            ),
        ];
        let whole = whole_of(chat, &chat_events).expect("it has ended");
        let all = json!({"content": [{"token": "Hel"}, {"token": "lo"}], "refusal": null});
        assert_eq!(whole["choices"][0]["logprobs"], all);
    }
}
