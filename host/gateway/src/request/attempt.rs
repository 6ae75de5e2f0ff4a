//! One attempt: sends the request to one engine, with a response or a failure that the scheduler
//! may retry elsewhere as result.
//!
//! An attempt may be repeated until the first byte of a response has reached the client, never
//! after.

use super::capture::capture_of;
use super::captured::captured;
use super::cause::{
    BusyAnswer, Cause, in_words, is_down, is_error, may_turn_away, refusal_of, turned_away,
};
use super::first_event::first_event;
use super::gathered::{Gathered, gather};
use super::generate::Call;
use super::interruption::{Interruptible, taken};
use super::isolation::salt_of;
use super::large::LargeAnswer;
use super::native::{Piece, Pieces, attempt_piece};
use super::parts::{as_stream, continuable, in_one_piece};
use super::prefill;
use super::refusal::{cut, not_recorded};
use super::stream::StreamAnswer;
use crate::guard::StepGuard;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::response::Parts;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use treadle_core::programs::StepTokens;
use treadle_http::{InUse, UpstreamError, of_engine};
use treadle_model::{EngineKind, FinishReason};
use treadle_scheduler::{Dispatch, Instruction};
use treadle_wire::{Endpoint, StepUsage, insert_fields, usage_of_body};

/// Assumed bytes per token, for engines that don't count tokens.
const BYTES_PER_TOKEN_GUESS: u64 = 4;

/// The result of an attempt.
pub(super) enum Outcome {
    /// A response for the client; the guard moved into it or is settled.
    Answered(Response<Body>),
    /// Reported as failed; the scheduler's next instruction decides. Has the response of a busy
    /// engine.
    Failed(StepGuard, Option<Box<BusyAnswer>>),
    /// Preempted by the scheduler before any response.
    Interrupted(StepGuard),
    /// The engine does not have the path, as this status shows; not reported to the scheduler.
    Unserved(StepGuard, StatusCode),
}

/// Why an attempt has no response.
pub(super) enum Ended {
    Failed(Cause),
    Interrupted,
}

impl Ended {
    pub(super) fn outcome(self, dispatch: &Dispatch, guard: StepGuard) -> Outcome {
        match self {
            Self::Interrupted => Outcome::Interrupted(guard),
            Self::Failed(cause) => {
                tracing::debug!(worker = %dispatch.worker, %cause, "an attempt failed");
                guard.attempt_failed(&cause.to_string(), cause.busy().map(BusyAnswer::wait));
                Outcome::Failed(guard, cause.into_busy())
            }
        }
    }
}

/// Sends the call to the engine that the scheduler chose. If the scheduler ends the step meanwhile,
/// a response still counts; `last_instruction` applies without one.
pub(super) async fn attempt(
    call: &Arc<Call>,
    dispatch: &Dispatch,
    instructions: &mut UnboundedReceiver<Instruction>,
    guard: StepGuard,
    last_instruction: &mut Option<Instruction>,
    pieces: &mut Pieces,
) -> Outcome {
    let engine = dispatch.engine;
    let capture = Box::pin(capture_of(call, dispatch, pieces)).await;
    // What is captured is one answer of one engine.
    let is_divisible = dispatch.interruptible && capture.is_none();
    let piece = pieces.next(call, is_divisible);
    let in_parts = is_divisible.then(|| as_stream(call, engine));
    let in_parts = in_parts.flatten();
    let is_whole = in_parts.is_some();
    let asked = in_parts.or_else(|| {
        let asked = is_divisible.then(|| continuable(call, engine));
        asked.flatten()
    });
    let streams = asked.is_some();
    if dispatch.interruptible && !streams && !piece.as_ref().is_some_and(Piece::is_interruptible) {
        call.runs_on();
    }
    if let Some(piece) = piece {
        let attempt = attempt_piece(
            call,
            dispatch,
            piece,
            pieces,
            instructions,
            guard,
            last_instruction,
        );
        return attempt.await;
    }
    if let Some(capture) = capture {
        let answer = tokio::select! {
            answer = Box::pin(captured(call, dispatch, capture)) => answer.map_err(Ended::Failed),
            ended = ended(instructions, streams, last_instruction) => Err(ended),
        };
        return match answer {
            Ok(answer) => {
                let answer = answer.respond(call, guard, taken(instructions));
                Outcome::Answered(Box::pin(answer).await)
            }
            Err(ended) => ended.outcome(dispatch, guard),
        };
    }
    let request = asked.as_ref().map_or(&call.body, |asked| &asked.body);
    let answer = tokio::select! {
        answer = exchange_within(call, dispatch, request) => answer.map_err(Ended::Failed),
        ended = ended(instructions, streams, last_instruction) => Err(ended),
    };
    match answer {
        Ok(Answer::Whole(response, body)) => {
            let by_path = call.responses.as_ref();
            if by_path.is_some_and(|call| call.is_unserved(response.status)) {
                return Outcome::Unserved(guard, response.status);
            }
            Outcome::Answered(whole(call, &response, body, guard).await)
        }
        Ok(Answer::Large(large)) => Outcome::Answered(large.respond(call, guard)),
        Ok(Answer::Stream(stream)) => {
            let own = asked.map(|asked| Interruptible::new(call.clone(), asked, engine));
            let response = stream.respond(call, guard, taken(instructions), own, None);
            Outcome::Answered(if is_whole {
                in_one_piece(call, response).await
            } else {
                response
            })
        }
        Err(ended) => ended.outcome(dispatch, guard),
    }
}

pub(super) enum Answer {
    Whole(Parts, Bytes),
    Stream(StreamAnswer),
    Large(LargeAnswer),
}

/// The time limit applies to a whole response, and to the rest of a stream.
pub(super) async fn exchange_within(
    call: &Call,
    dispatch: &Dispatch,
    request: &Bytes,
) -> Result<Answer, Cause> {
    let timeout = call.app.response_timeout;
    let deadline = Instant::now() + timeout;
    tokio::time::timeout_at(
        deadline,
        prefill::exchange(call, dispatch, request, deadline),
    )
    .await
    .unwrap_or_else(|_| Err(too_slow(timeout).into()))
}

/// The failure of an engine that exceeded its time limit.
pub(super) fn too_slow(timeout: Duration) -> String {
    let patience_s = timeout.as_secs();
    format!("the engine sent no complete response within {patience_s} s")
}

/// An engine's answer to a request.
pub(super) async fn answer_of(
    call: &Call,
    dispatch: &Dispatch,
    request: &Bytes,
    deadline: Instant,
) -> Result<Answer, Cause> {
    let response = send(call, dispatch, request).await?;
    let (parts, body) = response.into_parts();
    if parts.status.is_informational() {
        let status = parts.status;
        return Err(
            format!("the engine answered {status}, which is no answer to a request").into(),
        );
    }
    if may_turn_away(parts.status) {
        let body = refusal_of(body).await;
        return match turned_away(call, dispatch, &parts, &body) {
            Some(cause) => Err(cause),
            None => Ok(Answer::Whole(parts, body)),
        };
    }
    if parts.status.is_success() && is_stream(&parts) {
        return begun_stream(call, dispatch, parts, body, deadline).await;
    }
    let room = InUse::new([call.app.room.answers.clone()]);
    match gather(&parts, body, call.app.answer_bytes_max, room).await? {
        Gathered::Whole(body) => Ok(Answer::Whole(parts, body)),
        Gathered::Large { begun, rest, room } => Ok(Answer::Large(LargeAnswer {
            parts,
            begun,
            rest,
            deadline,
            room,
        })),
    }
}

/// Responds with a stream once its first event has arrived. A stream that begins with an overload
/// error counts as a failed attempt.
async fn begun_stream(
    call: &Call,
    dispatch: &Dispatch,
    parts: Parts,
    body: Incoming,
    deadline: Instant,
) -> Result<Answer, Cause> {
    let mut begun = first_event(body).await?;
    if let Some((status, body)) = begun.refusal.take()
        && let Ok(status) = StatusCode::from_u16(status)
    {
        let mut refused = parts.clone();
        refused.status = status;
        let json = HeaderValue::from_static("application/json");
        refused.headers.insert(header::CONTENT_TYPE, json);
        if let Some(cause) = turned_away(call, dispatch, &refused, &body) {
            return Err(cause);
        }
    }
    Ok(Answer::Stream(StreamAnswer {
        parts,
        begun,
        deadline,
    }))
}

pub(super) fn is_stream(parts: &Parts) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| {
        let name = kind.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("text/event-stream")
    })
}

pub(super) async fn send(
    call: &Call,
    dispatch: &Dispatch,
    body: &Bytes,
) -> Result<Response<Incoming>, Cause> {
    let body = addressed(call, dispatch, body);
    let headers = call.trace.goes(dispatch, &call.headers);
    let request = call
        .app
        .upstream
        .send(Method::POST, &dispatch.url, &call.target, &headers, body);
    match request.await {
        Ok(response) => Ok(response),
        Err(error) => {
            let cause = error.to_string();
            if matches!(error, UpstreamError::Connect(_)) {
                is_down(&call.client, dispatch.worker, &cause);
            }
            Err(cause.into())
        }
    }
}

/// The body with treadle's own fields: the program's slot on engines with slots, the priority on
/// engines that support it, and the salt of the prefix cache if tenants share engines.
pub(super) fn addressed(call: &Call, dispatch: &Dispatch, body: &Bytes) -> Bytes {
    let engine_slot = dispatch
        .slot
        .filter(|_| dispatch.engine == EngineKind::Llamacpp);
    let field = match engine_slot {
        Some(slot) => Some(("id_slot", slot.to_string())),
        None => urgency(call, dispatch).map(|urgency| ("priority", urgency.to_string())),
    };
    let salt = salt_of(call.salt.as_deref(), dispatch.engine, call.endpoint);
    let fields: Vec<_> = field.into_iter().chain(salt).collect();
    if fields.is_empty() {
        return body.clone();
    }
    let spliced = insert_fields(body, &fields);
    spliced.map_or_else(|| body.clone(), Bytes::from)
}

/// The step's priority in its engine's convention: vLLM serves the lowest first, SGLang the
/// highest. `None` if all steps have the same, since engines without priority scheduling would
/// refuse it, or if the client has set it.
fn urgency(call: &Call, dispatch: &Dispatch) -> Option<i64> {
    let priority = dispatch.priority.filter(|priority| *priority != 0)?;
    // The engines' form of Anthropic's API has no such field.
    if call.head.has_priority || call.endpoint == Endpoint::Messages {
        return None;
    }
    match dispatch.engine {
        EngineKind::Vllm => Some(-i64::from(priority)),
        EngineKind::Sglang => Some(i64::from(priority)),
        EngineKind::Llamacpp | EngineKind::Openai => None,
    }
}

/// Statuses with which engines refuse an invalid request. Other 4xx statuses concern the daemon:
/// authentication or rate limits.
pub(super) fn is_rejection(status: StatusCode) -> bool {
    let of_daemon = matches!(status.as_u16(), 401 | 403 | 407 | 408 | 421 | 425 | 429);
    status.is_client_error() && !of_daemon
}

/// The scheduler's next instruction: one received during an attempt comes first.
pub(super) async fn next_instruction(
    instructions: &mut UnboundedReceiver<Instruction>,
    last_instruction: &mut Option<Instruction>,
) -> Option<Instruction> {
    match last_instruction.take() {
        None => instructions.recv().await,
        given_up => given_up,
    }
}

/// Waits for the scheduler's instruction that ends an attempt.
pub(super) async fn ended(
    instructions: &mut UnboundedReceiver<Instruction>,
    is_interruptible: bool,
    last_instruction: &mut Option<Instruction>,
) -> Ended {
    loop {
        match instructions.recv().await {
            Some(Instruction::Abort(cause)) => return Ended::Failed(cause.to_string().into()),
            Some(Instruction::Cut) => return Ended::Failed(cut().message.into()),
            Some(Instruction::Preempt) if is_interruptible => return Ended::Interrupted,
            Some(Instruction::Dispatch(_) | Instruction::Preempt) => {}
            Some(last) => *last_instruction = Some(last),
            // The scheduler stopped; the engine may still answer.
            None => std::future::pending().await,
        }
    }
}

pub(super) async fn whole(
    call: &Call,
    parts: &Parts,
    body: Bytes,
    mut guard: StepGuard,
) -> Response<Body> {
    let usage = usage_of_body(call.endpoint, &body);
    let has_end = usage.is_some_and(|usage| usage.finish.is_some());
    if parts.status.is_success() && !has_end && is_error(&body) {
        let mut failed = parts.clone();
        failed.status = StatusCode::BAD_GATEWAY;
        let words = in_words(&body);
        guard.failed(&format!(
            "the engine answered {} with an error{words}",
            parts.status
        ));
        return respond(call, &failed, body);
    }
    if parts.status.is_success() {
        return answered(call, parts, body, usage.unwrap_or_default(), guard).await;
    } else if is_rejection(parts.status) {
        let words = in_words(&body);
        guard.rejected(&format!(
            "the engine refused the request with {}{words}",
            parts.status
        ));
    } else {
        let words = in_words(&body);
        guard.failed(&format!("the engine answered {}{words}", parts.status));
    }
    respond(call, parts, body)
}

/// Responds with a complete answer once its end is on record.
pub(super) async fn answered(
    call: &Call,
    parts: &Parts,
    body: Bytes,
    usage: StepUsage,
    mut guard: StepGuard,
) -> Response<Body> {
    let guess = || body.len() as u64 / BYTES_PER_TOKEN_GUESS;
    let tokens = StepTokens {
        prompt: usage.prompt_tokens.unwrap_or(0),
        output: usage.output_tokens.unwrap_or_else(guess),
        cached: usage.cached_tokens,
    };
    let recorded = guard.finished(tokens, finish_of(usage.finish), usage.weights.name());
    if let Some(recorded) = recorded
        && let Err(error) = recorded.await
    {
        return not_recorded(error);
    }
    respond(call, parts, body)
}

fn respond(call: &Call, parts: &Parts, body: Bytes) -> Response<Body> {
    if let Some(capture) = call.capture() {
        capture.file(std::slice::from_ref(&body));
    }
    marked(call, parts, Body::from(body))
}

/// An engine's response as its client gets it.
pub(super) fn marked(call: &Call, parts: &Parts, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = of_engine(&parts.headers);
    mark(call, &mut response);
    response
}

/// Adds the header that names the request's program.
pub(super) fn mark(call: &Call, response: &mut Response<Body>) {
    if let Some((name, value)) = program_header(call) {
        response.headers_mut().insert(name, value);
    }
}

/// The header that names the program.
pub(super) fn program_header(call: &Call) -> Option<(HeaderName, HeaderValue)> {
    let program = call.principal.outside(&call.program)?;
    let name = HeaderName::from_static("x-treadle-program");
    Some((name, HeaderValue::from_str(program).ok()?))
}

pub(super) fn finish_of(finish: Option<treadle_wire::Finish>) -> FinishReason {
    use treadle_wire::Finish;
    match finish {
        Some(Finish::Stop) => FinishReason::Stop,
        Some(Finish::Length) => FinishReason::Length,
        Some(Finish::ToolCalls) => FinishReason::ToolCalls,
        Some(Finish::Abort) => FinishReason::Abort,
        Some(Finish::Other) | None => FinishReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;
    use treadle_core::programs::Refusal;

    #[tokio::test]
    async fn a_step_that_is_given_up_in_an_attempt_ends_with_the_reason() {
        let (instruct, mut instructions) = unbounded_channel();
        let mut last_instruction = None;
        let refusal = Refusal::EngineFailed {
            cause: "503".into(),
            attempts: 1,
        };
        for instruction in [
            Instruction::Preempt,
            Instruction::Refuse(refusal.clone()),
            Instruction::Abort("the worker was lost".into()),
        ] {
            instruct.send(instruction).unwrap();
        }
        let ended = ended(&mut instructions, false, &mut last_instruction).await;
        assert!(
            matches!(ended, Ended::Failed(cause) if cause.to_string() == "the worker was lost")
        );
        // The sender is dropped with the refusal, which must not be mistaken for the scheduler's
        // end.
        drop(instruct);
        let next = next_instruction(&mut instructions, &mut last_instruction).await;
        assert!(matches!(next, Some(Instruction::Refuse(found)) if found == refusal));
        let next = next_instruction(&mut instructions, &mut last_instruction).await;
        assert!(next.is_none());
    }
}
