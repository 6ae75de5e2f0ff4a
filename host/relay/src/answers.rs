//! What engines answer, what it means for their weights, and what the trainer gets.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use treadle_core::weights::{Answer, TrainerCall};
use treadle_http::InUse;
use treadle_model::{EngineKind, WorkerId};
use treadle_wire::{ErrorBody, ErrorCode};

/// What SGLang says of an update that happened, although the answer is an error: the cache could
/// not be flushed. treadle clears it before the engine resumes.
const UPDATED: &str = "Weights were updated";
/// Largest answer that is read: checksums of all tensors of a large model on many ranks.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of all answers that are read at the same time, until trainers have them.
pub(crate) const ANSWERS_BYTES_MAX: u64 = 4 << 30;
/// Longest words of an engine that are kept.
const WORDS_MAX: usize = 400;

/// Reads an engine's answer, within the memory for those of all calls.
///
/// # Errors
/// Why it can't be read to its end.
pub(crate) async fn gather(body: Body, mut room: InUse<1>) -> Result<Bytes, String> {
    let mut body = Limited::new(body, ANSWER_BYTES_MAX);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        room.grow(data.len() as u64).map_err(|_| {
            format!(
                "answers of engines to trainers' calls would have more than {ANSWERS_BYTES_MAX} \
                 bytes at once; make fewer calls at a time"
            )
        })?;
        whole.extend_from_slice(&data);
    }
    Ok(room.hold(whole.freeze()))
}

/// An answer for a trainer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) kind: HeaderValue,
    pub(crate) body: Bytes,
    /// The request never reached the engine.
    pub(crate) is_own: bool,
}

impl Reply {
    pub(crate) fn json(status: StatusCode, page: &Value) -> Self {
        Self {
            status,
            kind: HeaderValue::from_static("application/json"),
            body: page.to_string().into(),
            is_own: false,
        }
    }

    pub(crate) fn error(error: &ErrorBody) -> Self {
        let status = StatusCode::from_u16(error.code.status());
        Self {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            kind: HeaderValue::from_static("application/json"),
            body: error.to_json().into(),
            is_own: true,
        }
    }

    /// The connection broke: the engine may have done it.
    pub(crate) fn lost(cause: &str) -> Self {
        let message =
            format!("{cause}; what the engine did is not known, so don't repeat the call");
        let reply = Self::refused(ErrorCode::EngineUnreachable, message);
        Self {
            is_own: false,
            ..reply
        }
    }

    pub(crate) fn refused(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::error(&ErrorBody::new(code, message))
    }

    /// The engine generates again, in the words of its software.
    pub(crate) fn resumed(kind: EngineKind) -> Self {
        let page = match kind {
            EngineKind::Sglang => {
                json!({"status": "ok", "message": "Generation continued successfully."})
            }
            _ => json!({"status": "resumed"}),
        };
        Self::json(StatusCode::OK, &page)
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    pub(crate) fn page(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// An error's words, for a human.
    pub(crate) fn words(&self) -> String {
        let page = self.page();
        let said = ["/error/message", "/error", "/message", "/detail"];
        let said = said.iter().find_map(|at| page.pointer(at)?.as_str());
        let text = String::from_utf8_lossy(&self.body);
        let said = said.unwrap_or(&text).chars().take(WORDS_MAX);
        let said: String = said.map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{}: {}", self.status, said.trim())
    }

    /// An update that happened is a success, though SGLang answers 400.
    pub(crate) fn corrected(mut self) -> Self {
        let page = self.page();
        let said = page["message"].as_str().unwrap_or_default();
        if self.status == StatusCode::BAD_REQUEST && said.starts_with(UPDATED) {
            self = Self::json(StatusCode::OK, &json!({"success": true, "message": said}));
        }
        self
    }

    /// What the answer to a trainer's call means.
    pub(crate) fn meaning(&self, call: &TrainerCall) -> Answer {
        let cause = || self.words().into();
        let says_no = self.page()["success"] == Value::Bool(false);
        if self.is_success() && !says_no {
            return Answer::Done;
        }
        // There is no such path, or the body is wrong: nothing was done.
        let is_untouched = matches!(self.status.as_u16(), 404 | 405 | 422);
        let is_pause = matches!(call, TrainerCall::Pause { .. }) && self.status.is_client_error();
        if self.is_own || is_untouched || is_pause {
            return Answer::Refused { cause: cause() };
        }
        Answer::Failed { cause: cause() }
    }

    /// The same answer, which also names engines that were left behind.
    pub(crate) fn naming(self, behind: &[(WorkerId, String)]) -> Self {
        if behind.is_empty() {
            return self;
        }
        let mut page = match self.page() {
            Value::Object(page) => Value::Object(page),
            other => json!({"answer": other}),
        };
        let behind = behind
            .iter()
            .map(|(worker, cause)| json!({"worker": worker.0, "cause": cause}));
        page["treadle"] = json!({"behind": behind.collect::<Vec<Value>>()});
        Self::json(self.status, &page)
    }

    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, self.kind);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use treadle_http::Tally;

    const PART: TrainerCall = TrainerCall::Part { name: None };

    #[tokio::test]
    async fn answers_are_read_within_the_memory_for_all() {
        let all = Arc::new(Tally::default());
        let read = |text: &'static str| {
            let room = InUse::new([(all.clone(), 10)]);
            gather(Body::from(text), room)
        };
        let held = read("1234567").await.expect("there is room");
        let refused = read("1234").await.expect_err("there is room for 3");
        assert!(refused.contains("make fewer calls"), "{refused}");
        drop(held);
        assert_eq!(all.used(), 0, "trainers have them");
        assert_eq!(read("1234").await.expect("there is room"), "1234");
    }

    fn said(status: u16, page: &Value) -> Reply {
        let status = StatusCode::from_u16(status).expect("a status");
        Reply::json(status, page).corrected()
    }

    #[test]
    fn only_an_answer_that_says_so_leaves_the_weights_as_they_were() {
        let is_failed = |reply: &Reply| matches!(reply.meaning(&PART), Answer::Failed { .. });
        let is_refused = |reply: &Reply| matches!(reply.meaning(&PART), Answer::Refused { .. });
        assert!(is_failed(&said(500, &json!({"detail": "torn"}))));
        assert!(is_failed(&said(
            400,
            &json!({"message": "partially updated"})
        )));
        assert!(is_failed(&said(200, &json!({"success": false}))));
        assert!(is_refused(&said(404, &json!({}))) && is_refused(&said(422, &json!({}))));
        let unreachable = Reply::refused(ErrorCode::EngineUnreachable, "no connection");
        assert!(is_refused(&unreachable));
        assert!(is_failed(&Reply::lost("the connection broke")));
        let pause = TrainerCall::Pause { own: false };
        let refused = said(400, &json!({"error": "KV is remote"})).meaning(&pause);
        let cause = "400 Bad Request: KV is remote".into();
        assert_eq!(refused, Answer::Refused { cause });
    }

    #[test]
    fn an_update_whose_flush_failed_is_an_update() {
        let reply = said(
            400,
            &json!({"success": false, "message": "Weights were updated, but not flushed"}),
        );
        assert_eq!(
            (reply.status, reply.meaning(&PART)),
            (StatusCode::OK, Answer::Done)
        );
    }

    #[test]
    fn an_answer_names_who_was_left_behind() {
        let reply = said(200, &json!({"message": "Weights updated"}));
        let named = reply.naming(&[(WorkerId(1), "torn".to_owned())]).page();
        assert_eq!(named["message"], "Weights updated");
        assert_eq!(named["treadle"]["behind"][0]["worker"], 1);
    }
}
