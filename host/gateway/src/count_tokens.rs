//! `/v1/messages/count_tokens`: forwarded to an engine that has it, else counted with an engine's
//! tokenizer.

use super::GatewayState;
use super::forward::{Forward, ask, engine_with, respond};
use super::models::json_of;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use treadle_core::programs::Worker;
use treadle_http::error_response;
use treadle_wire::Forwarded;

const PATH: &str = "/v1/messages/count_tokens";

/// Counts the tokens of the prompt of a request to `/v1/messages`.
pub async fn count_tokens(app: Arc<GatewayState>, request: Request) -> Response<Body> {
    let call = match Forward::read(&app, Forwarded::CountTokens, request).await {
        Ok(call) => call,
        Err(error) => return error_response(&error),
    };
    let engine = match engine_with(&app, call.model.as_deref()).await {
        Ok(engine) => engine,
        Err(error) => return error_response(&error),
    };
    let target = format!("{PATH}{}", call.query);
    let body = call.body.clone();
    let answer = ask(&app, &engine, Method::POST, &target, &call.headers, body).await;
    let lacks = |status| {
        matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        )
    };
    if let Ok(response) = &answer
        && lacks(response.status())
        && let Some(tokens) = tokenized(&app, &engine, &call).await
    {
        return axum::Json(json!({"input_tokens": tokens})).into_response();
    }
    respond(answer)
}

/// The tokens of all texts of the prompt, by the engine's tokenizer. Additions of the chat template
/// are not counted.
async fn tokenized(app: &GatewayState, engine: &Worker, call: &Forward) -> Option<u64> {
    let request: Value = serde_json::from_slice(&call.body).ok()?;
    let text = text_of(&request);
    // vLLM and SGLang read the prompt, llama.cpp the content.
    let mut body = json!({"prompt": text, "content": text});
    if let Some(model) = &call.model {
        body["model"] = model.as_str().into();
    }
    let body = Bytes::from(body.to_string());
    let response = ask(app, engine, Method::POST, "/tokenize", &call.headers, body);
    let counted = json_of(app, response.await.ok()?).await?;
    let listed = || {
        counted["tokens"]
            .as_array()
            .map(|tokens| tokens.len() as u64)
    };
    counted["count"].as_u64().or_else(listed)
}

/// The text of a prompt, one part per line.
fn text_of(request: &Value) -> String {
    let mut text = String::new();
    for part in ["system", "tools", "messages"] {
        gather(&request[part], &mut text);
    }
    text
}

fn gather(value: &Value, text: &mut String) {
    match value {
        Value::String(part) => {
            text.push_str(part);
            text.push('\n');
        }
        Value::Array(parts) => parts.iter().for_each(|part| gather(part, text)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    // Images are not text, and the other fields are not part of the prompt.
                    "source" | "cache_control" | "type" | "signature" => {}
                    "input" | "input_schema" => {
                        text.push_str(&value.to_string());
                        text.push('\n');
                    }
                    _ => gather(value, text),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_of_a_prompt_are_counted_and_nothing_else() {
        let request = json!({
            "model": "m",
            "max_tokens": 5,
            "system": [{"type": "text", "text": "brief", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "1", "name": "ls", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
                ]},
            ],
        });
        let text = text_of(&request);
        let lines: std::collections::BTreeSet<&str> = text.lines().collect();
        let expected = [
            "brief",
            "ls",
            "{\"type\":\"object\"}",
            "user",
            "hi",
            "assistant",
            "1",
            "{\"a\":1}",
        ];
        assert_eq!(lines, expected.into());
    }
}
