//! Refusals of generation requests, with the cause and the remedy.

use super::attempt::marked;
use super::cause::BusyAnswer;
use super::generate::Call;
use super::native::Pieces;
use crate::guard::StepGuard;
use crate::model_names::not_found;
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use treadle_core::programs::Refusal;
use treadle_http::{error_response, refuse};
use treadle_scheduler::NotRecorded;
use treadle_wire::{Endpoint, ErrorBody, ErrorCode};

/// The scheduler has stopped.
pub(super) fn stopped() -> Response {
    refuse(
        ErrorCode::Overloaded,
        "treadle is shutting down; send the request again",
    )
}

/// Another scheduler has taken over and does not have the step.
pub(super) fn interrupted() -> Response {
    refuse(
        ErrorCode::Overloaded,
        "another scheduler took over before the request was on record; send it again",
    )
}

/// A response is complete or a change is made, but it could not be recorded.
pub fn not_recorded(error: NotRecorded) -> Response {
    let code = match error {
        NotRecorded::Stopped => ErrorCode::Overloaded,
        NotRecorded::Refused => ErrorCode::Internal,
    };
    refuse(code, error.to_string())
}

/// A refusal for the client. If no other engine accepted what a busy one turned away, the busy
/// engine's own response is returned, with its retry time.
pub(super) fn refused(call: &Call, refusal: &Refusal, busy: Option<Box<BusyAnswer>>) -> Response {
    if let Some(capture) = call.capture() {
        let answer = busy.as_ref().map(|busy| busy.body.clone());
        capture.file(answer.as_slice());
    }
    match (refusal, busy) {
        (Refusal::EngineFailed { .. }, Some(busy)) => {
            marked(call, &busy.parts, Body::from(busy.body))
        }
        // Treadle ended it, and not its client.
        (Refusal::ProgramReleased, _) if call.member.is_some() => error_response(&cut()),
        _ => error_response(&explain(refusal)),
    }
}

/// The step's member was cut or replaced.
pub(super) fn cut() -> ErrorBody {
    ErrorBody::new(
        ErrorCode::MemberDropped,
        "the program was cut or replaced while this step waited or ran; begin another one",
    )
}

/// The rest of an interrupted response is too large to be joined with the earlier part.
pub(super) fn too_large_to_join(call: &Call, mut guard: StepGuard) -> Response {
    let message = too_large(call);
    guard.failed(&message);
    refuse(ErrorCode::AnswerTooLarge, message)
}

/// Why a response can't be assembled.
pub(super) fn too_large(call: &Call) -> String {
    format!(
        "the response must be assembled, and either it exceeds {} bytes or the daemon's memory for \
         responses is full; raise engines.answer_bytes_max",
        call.app.answer_bytes_max
    )
}

fn explain(refusal: &Refusal) -> ErrorBody {
    match refusal {
        Refusal::ContextTooLong {
            prompt_tokens,
            tokens_max,
        } => ErrorBody::new(
            ErrorCode::ContextTooLong,
            format!(
                "the prompt has at least {prompt_tokens} tokens, but no worker holds more than \
                 {tokens_max}; shorten it or add a worker with more KV memory"
            ),
        ),
        Refusal::QueueWaitExceeded {
            waited_ms,
            suspended_ms,
            healthy_workers,
            cordoned_workers,
        } => waited_too_long(
            *waited_ms,
            *suspended_ms,
            *healthy_workers,
            *cordoned_workers,
        ),
        Refusal::QueueFull { steps_max } => ErrorBody::new(
            ErrorCode::QueueFull,
            format!(
                "{steps_max} steps are already waiting; send fewer at once or raise \
                 scheduler.queue_len_max"
            ),
        ),
        Refusal::ProgramsFull { programs_max } => ErrorBody::new(
            ErrorCode::ProgramsFull,
            format!(
                "{programs_max} programs are live; release finished ones with \
                 POST /programs/release or raise scheduler.programs_max"
            ),
        ),
        Refusal::EngineFailed { cause, attempts } => ErrorBody::new(
            ErrorCode::EngineUnreachable,
            format!("the step failed at engines {attempts} times; last cause: {cause}"),
        ),
        Refusal::ModelUnknown { model, served } => {
            not_found(model, served.iter().map(|name| &**name))
        }
        Refusal::ProgramReleased => ErrorBody::new(
            ErrorCode::ProgramReleased,
            "the program was released while this step waited or ran",
        ),
    }
}

/// Why a step waited until its limit.
fn waited_too_long(
    waited_ms: u64,
    suspended_ms: u64,
    healthy_workers: u32,
    cordoned_workers: u32,
) -> ErrorBody {
    let (code, message) = if healthy_workers == 0 {
        let message = format!(
            "no engine has responded for {waited_ms} ms; start one of the registered \
             engines or register another with POST /workers"
        );
        (ErrorCode::NoHealthyWorker, message)
    } else if suspended_ms > 0 {
        let message = format!(
            "the step waited {waited_ms} ms, and {suspended_ms} ms more, which is the \
             limit, while every engine that could take it was fenced because of its \
             weights; `treadle weights status` says why; end the update, restart the \
             engines, or raise scheduler.queue_wait_s_max"
        );
        (ErrorCode::WorkersCordoned, message)
    } else if cordoned_workers >= healthy_workers {
        let message = format!(
            "the step waited {waited_ms} ms, while every responding engine was cordoned, \
             draining or paused; activate one with `treadle workers activate URL`, resume \
             one, or register another"
        );
        (ErrorCode::WorkersCordoned, message)
    } else {
        let message = format!(
            "the step waited {waited_ms} ms for KV memory; release finished programs, add \
             workers or raise scheduler.queue_wait_s_max"
        );
        (ErrorCode::QueueWaitExceeded, message)
    };
    ErrorBody::new(code, message)
}

/// The tenant's limit on live programs is reached.
pub(super) fn live_programs_full(call: &Call, programs_max: u64) -> Response {
    let name = call.principal.tenant.tenant.name();
    let message = format!(
        "the tenant `{name}` has {programs_max} live programs; release finished ones with POST \
         /programs/release, or have the tenant's `live_programs` raised"
    );
    refuse(ErrorCode::TenantProgramsFull, message)
}

/// The response for a step that was aborted while no engine had it: its pieces so far, with the
/// reason. Without pieces, SGLang's clients expect an empty response as from the engine.
pub(super) fn aborted(call: &Call, pieces: &Pieces) -> Response {
    if let Some(answer) = pieces.joined(call.endpoint) {
        // Its last piece says that it was aborted.
        return Json(answer).into_response();
    }
    if call.endpoint != Endpoint::SglangGenerate || call.head.stream {
        return refuse(
            ErrorCode::ProgramReleased,
            "the request was aborted by POST /abort_request",
        );
    }
    let message = "aborted while it waited for placement";
    Json(json!({
        "text": "",
        "output_ids": [],
        "meta_info": {
            "id": call.head.request_id,
            "finish_reason": {"type": "abort", "message": message},
            "prompt_tokens": call.head.prompt.tokens.unwrap_or(0),
            "completion_tokens": 0,
            "cached_tokens": 0,
            "output_token_logprobs": [],
        },
    }))
    .into_response()
}
