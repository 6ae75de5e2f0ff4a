//! The exchange of a step whose tokens are captured.

use super::attempt::{Answer, answered, exchange_within, is_rejection, whole};
use super::capture::Capture;
use super::cause::{Cause, in_words};
use super::generate::Call;
use super::prefill;
use crate::guard::StepGuard;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_scheduler::{Dispatch, Instruction};
use treadle_wire::usage_of_body;

/// An answer whose tokens are captured, unless its engine can't give them.
pub(super) struct CapturedAnswer {
    answer: Answer,
    capture: Option<Capture>,
}

/// Exchanges a request that asks for tokens. An engine that refuses it is asked without.
pub(super) async fn captured(
    call: &Call,
    dispatch: &Dispatch,
    mut capture: Capture,
) -> Result<CapturedAnswer, Cause> {
    let continued = Box::pin(capture.continued(call, dispatch)).await?;
    let again = prefill::again(dispatch);
    let answer = if let Some(answer) = continued {
        answer
    } else {
        let dispatch = if capture.was_sent() { &again } else { dispatch };
        exchange_within(call, dispatch, &capture.request).await?
    };
    if let Answer::Whole(parts, body) = &answer
        && (is_rejection(parts.status) || parts.status.is_server_error())
    {
        let (status, words) = (parts.status, in_words(body));
        let answer = exchange_within(call, &again, &call.body).await?;
        if !matches!(&answer, Answer::Whole(parts, _) if !parts.status.is_success()) {
            let cause = format!("the engine refused to give tokens with {status}{words}");
            capture.failed(&cause).await;
        }
        return Ok(CapturedAnswer {
            answer,
            capture: None,
        });
    }
    Ok(CapturedAnswer {
        answer,
        capture: Some(capture),
    })
}

impl CapturedAnswer {
    /// The client's response.
    pub(super) async fn respond(
        self,
        call: &Call,
        guard: StepGuard,
        instructions: UnboundedReceiver<Instruction>,
    ) -> Response<Body> {
        match (self.answer, self.capture) {
            (Answer::Whole(mut parts, body), Some(mut capture)) if parts.status.is_success() => {
                let mut body = capture.whole(body);
                let played = capture.is_played.then(|| capture.played(&body)).flatten();
                capture.keep().await;
                let usage = usage_of_body(call.endpoint, &body).unwrap_or_default();
                if let Some(played) = played {
                    let events = HeaderValue::from_static("text/event-stream");
                    parts.headers.insert(header::CONTENT_TYPE, events);
                    parts.headers.remove(header::CONTENT_LENGTH);
                    body = played;
                }
                answered(call, &parts, body, usage, guard).await
            }
            (Answer::Whole(parts, body), _) => whole(call, &parts, body, guard).await,
            (Answer::Large(large), capture) => {
                if let Some(capture) = capture {
                    capture.failed("the answer is too large to be read").await;
                }
                large.respond(call, guard)
            }
            (Answer::Stream(stream), capture) => {
                stream.respond(call, guard, instructions, None, capture)
            }
        }
    }
}
