//! APIs that are answered through a simulated chat: `/v1/messages` and `/v1/responses`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use treadle_translate::{AnswerHead, ResponseBuilder, ResponsesRequest};
use treadle_wire::RequestError;

use super::Shared;
use super::answer::answer_within;
use super::anthropic::{self, MessageAnswer};
use super::error::ApiError;
use super::frames::now_s;
use super::request::{Limit, count_chat};
use super::shape::Shape;
use super::translation::translate;

type SharedState = State<Arc<Shared>>;

/// `/v1/messages`.
pub(super) async fn messages(
    State(shared): SharedState,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match anthropic::to_chat(&body) {
        Ok(chat) => {
            let chat = chat.to_string().into();
            let response = answer_within(shared, Shape::Chat, headers, chat, Limit::AtMost).await;
            translate(response, MessageAnswer::default()).await
        }
        Err(error) => error.into_response(),
    }
}

/// `/v1/messages/count_tokens`.
pub(super) async fn count_tokens(
    State(shared): SharedState,
    body: Bytes,
) -> Result<axum::Json<Value>, ApiError> {
    let chat = anthropic::to_chat(&body)?;
    let tokens = count_chat(chat.to_string().as_bytes(), &shared.options)?;
    Ok(axum::Json(serde_json::json!({ "input_tokens": tokens })))
}

/// `/v1/responses`.
pub(super) async fn responses(
    State(shared): SharedState,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if shared.faults.get().no_responses {
        let message = "the simulated engine has no /v1/responses";
        return ApiError::new(StatusCode::NOT_FOUND, message).into_response();
    }
    let invalid = |error: RequestError| ApiError::invalid(error.message);
    let read = ResponsesRequest::parse(&body).and_then(|request| {
        let chat = request.to_chat()?;
        Ok((request, chat))
    });
    let (request, mut chat) = match read {
        Ok(read) => read,
        Err(error) => return invalid(error).into_response(),
    };
    let number = shared.next_id.fetch_add(1, Ordering::Relaxed);
    let head = AnswerHead {
        name: format!("sim{:x}{number:x}", shared.options.seed),
        created_s: now_s(),
        is_stored: false,
        previous: None,
    };
    let chat_body = std::mem::take(&mut chat.body).into();
    let builder = ResponseBuilder::new(&request, &chat, head);
    let response = answer_within(shared, Shape::Chat, headers, chat_body, Limit::AtMost).await;
    translate(response, builder).await
}
