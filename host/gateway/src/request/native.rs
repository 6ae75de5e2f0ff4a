//! Non-streaming responses of the engines' own APIs, `/generate` and `/inference/v1/generate`. To
//! interrupt one, the engine is asked to abort it: it responds with its output so far, including
//! token ids and log-probabilities, and the rest is requested later with those ids appended to the
//! prompt.

use super::attempt::{Answer, Ended, Outcome, ended, exchange_within, whole};
use super::continuation::{PartialAnswer, body_of, extend_prompt, lower_limits, parse};
use super::generate::Call;
use super::interruption::taken;
use super::joined::join;
use super::obstacles::{ABOUT_TO_END, Obstacle, ends_within, stops};
use super::refusal::too_large_to_join;
use crate::guard::StepGuard;
use axum::http::Method;
use bytes::Bytes;
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_model::{EngineKind, StepId};
use treadle_scheduler::{Dispatch, Instruction};
use treadle_wire::Endpoint;

/// Most attempts to abort a request, which fail while it has not reached the engine.
const ABORTS_MAX: usize = 10;
const ABORT_PAUSE: Duration = Duration::from_millis(500);
/// Timeout of an abort request.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
/// vLLM's header with the request's id.
const REQUEST_ID: &str = "x-request-id";
/// Keeps the requests of several daemons at one engine apart.
pub(super) static DAEMON: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("requests"));

/// The pieces of an interrupted response.
#[derive(Default)]
pub(super) struct Pieces {
    bodies: Vec<Bytes>,
    bytes: usize,
    /// Requests for pieces so far.
    asked: u64,
}

/// A request for a piece.
pub(super) struct Piece {
    pub(super) body: Bytes,
    /// The request that aborts it; `None` if it must run to its end.
    abort: Option<(&'static str, Bytes)>,
}

impl Piece {
    pub(super) const fn is_interruptible(&self) -> bool {
        self.abort.is_some()
    }
}

/// What happens with an engine's response.
enum Assembly {
    /// It is stored as a piece: the rest is requested later.
    Partial,
    /// It completes the response.
    Whole(Bytes),
}

impl Pieces {
    /// Whether none is there yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// The request for the rest; `None` if the response can't be assembled from pieces.
    pub(super) fn next(&mut self, call: &Call, is_interruptible: bool) -> Option<Piece> {
        if !matches!(
            call.endpoint,
            Endpoint::SglangGenerate | Endpoint::VllmGenerate
        ) {
            return None;
        }
        let is_first = self.is_empty();
        let is_bounded = self.bytes <= call.app.answer_bytes_max;
        let is_interruptible = is_interruptible && is_bounded;
        if call.head.stream || (is_first && !is_interruptible) {
            return None;
        }
        if call.endpoint == Endpoint::VllmGenerate && call.headers.contains_key(REQUEST_ID) {
            return None;
        }
        let name = name_of(call.step, self.asked);
        let so_far = self.joined(call.endpoint);
        match request_for_rest(call.endpoint, &call.body, so_far.as_ref(), &name) {
            Ok(body) => {
                self.asked += 1;
                let abort = is_interruptible.then(|| abort_of(call.endpoint, &name));
                Some(Piece { body, abort })
            }
            Err(obstacle) => {
                tracing::debug!(step = %call.step, obstacle, "a step is not interrupted");
                None
            }
        }
    }

    /// The joined pieces so far.
    pub(super) fn joined(&self, endpoint: Endpoint) -> Option<Value> {
        let pieces = self.bodies.iter();
        let pieces = pieces.filter_map(|piece| serde_json::from_slice(piece).ok());
        pieces.reduce(|before, after| join(endpoint, &before, after))
    }

    /// Adds an engine's response; `was_asked` if an abort was requested.
    fn take(&mut self, call: &Call, body: Bytes, was_asked: bool) -> Assembly {
        let Ok(answer) = serde_json::from_slice::<Value>(&body) else {
            return Assembly::Whole(body);
        };
        let before = self.joined(call.endpoint);
        let joined = match &before {
            Some(before) => join(call.endpoint, before, answer.clone()),
            None => answer.clone(),
        };
        if !(was_asked && is_aborted(call.endpoint, &answer)) {
            return Assembly::Whole(before.map_or(body, |_| joined.to_string().into()));
        }
        match request_for_rest(call.endpoint, &call.body, Some(&joined), "") {
            Ok(_) if is_clean(call.endpoint, &call.body, &answer) => {
                self.bytes += body.len();
                self.bodies.push(body);
                Assembly::Partial
            }
            Err(ABOUT_TO_END) => Assembly::Whole(ended_by_length(call.endpoint, joined).into()),
            // A piece that can't be continued is generated again.
            _ => Assembly::Partial,
        }
    }
}

fn name_of(step: StepId, piece: u64) -> String {
    // SGLang aborts all requests whose names begin with the given one.
    format!("treadle-{:016x}-{:x}-{piece}.", *DAEMON, step.0)
}

/// The path and the body of an abort request.
fn abort_of(endpoint: Endpoint, name: &str) -> (&'static str, Bytes) {
    let (path, body) = match endpoint {
        Endpoint::SglangGenerate => ("/abort_request", json!({"rid": name})),
        // vLLM's own name for it.
        _ => (
            "/inference/v1/abort_requests",
            json!({"request_ids": [format!("generate-tokens-{name}")]}),
        ),
    };
    (path, body.to_string().into())
}

fn request_for_rest(
    endpoint: Endpoint,
    request: &[u8],
    so_far: Option<&Value>,
    name: &str,
) -> Result<Bytes, Obstacle> {
    let name_field = match endpoint {
        Endpoint::SglangGenerate => "rid",
        _ => "request_id",
    };
    let original = request;
    let mut request = parse(original)?;
    if request.get(name_field).is_some_and(|own| !own.is_null()) {
        return Err("its client chose its id");
    }
    let sampling = request.get("sampling_params").and_then(Value::as_object);
    let has_stops = sampling.is_some_and(|sampling| !stops(sampling).is_empty());
    let is_text = |mode: &Value| mode == "text";
    if has_stops
        && endpoint == Endpoint::VllmGenerate
        && !request.get("output_mode").is_some_and(is_text)
    {
        return Err("stop");
    }
    let answer = match so_far {
        Some(so_far) => partial(endpoint, so_far)?,
        None => PartialAnswer {
            has_ids: true,
            ..PartialAnswer::default()
        },
    };
    let seen = answer.ids.len() as u64;
    let engine = match endpoint {
        Endpoint::SglangGenerate => EngineKind::Sglang,
        _ => EngineKind::Vllm,
    };
    extend_prompt(&mut request, endpoint, engine, &answer)?;
    lower_limits(&mut request, endpoint, engine, seen)?;
    if so_far.is_some() {
        // The prompt's log-probabilities came with the first piece.
        request.remove("logprob_start_len");
    }
    request.insert(name_field.into(), name.into());
    body_of(&request, original)
}

/// The output so far.
fn partial(endpoint: Endpoint, answer: &Value) -> Result<PartialAnswer, Obstacle> {
    let (of, ids) = match endpoint {
        Endpoint::SglangGenerate => (answer, &answer["output_ids"]),
        _ => (&answer["choices"][0], &answer["choices"][0]["token_ids"]),
    };
    let ids = ids.as_array().ok_or("its answer has no token ids")?;
    let counted = &answer["meta_info"]["completion_tokens"];
    if counted
        .as_u64()
        .is_some_and(|counted| counted != ids.len() as u64)
    {
        return Err("its answer does not contain all generated tokens");
    }
    Ok(PartialAnswer {
        text: of["text"].as_str().unwrap_or_default().to_owned(),
        ids: ids.clone(),
        has_ids: true,
        ..PartialAnswer::default()
    })
}

/// False if a piece ends within a stop sequence, which the engine would then miss, or within a
/// character, which would then be lost.
fn is_clean(endpoint: Endpoint, request: &[u8], piece: &Value) -> bool {
    let Ok(piece) = partial(endpoint, piece) else {
        return false;
    };
    let request: Value = serde_json::from_slice(request).unwrap_or_default();
    let sampling = request["sampling_params"].as_object();
    let is_stopping = sampling.is_some_and(|sampling| ends_within(&piece.text, &stops(sampling)));
    !piece.ids.is_empty() && !is_stopping && !piece.text.ends_with(char::REPLACEMENT_CHARACTER)
}

fn is_aborted(endpoint: Endpoint, answer: &Value) -> bool {
    let end = match endpoint {
        Endpoint::SglangGenerate => &answer["meta_info"]["finish_reason"]["type"],
        _ => &answer["choices"][0]["finish_reason"],
    };
    end == "abort"
}

/// Converts a response that was aborted at its token limit to one that ended by length.
fn ended_by_length(endpoint: Endpoint, mut answer: Value) -> String {
    if endpoint == Endpoint::SglangGenerate {
        let tokens = answer["meta_info"]["completion_tokens"].clone();
        answer["meta_info"]["finish_reason"] = json!({"type": "length", "length": tokens});
    } else {
        answer["choices"][0]["finish_reason"] = "length".into();
    }
    answer.to_string()
}

/// One attempt at a piece, see [`super::attempt::attempt`].
pub(super) async fn attempt_piece(
    call: &Call,
    dispatch: &Dispatch,
    piece: Piece,
    pieces: &mut Pieces,
    instructions: &mut UnboundedReceiver<Instruction>,
    guard: StepGuard,
    last_instruction: &mut Option<Instruction>,
) -> Outcome {
    let mut exchange = pin!(exchange_within(call, dispatch, &piece.body));
    let mut aborting = None;
    let mut was_asked = false;
    let answer = loop {
        tokio::select! {
            answer = &mut exchange => break answer.map_err(Ended::Failed),
            ended = ended(instructions, piece.is_interruptible(), last_instruction) => match ended {
                Ended::Failed(cause) => break Err(Ended::Failed(cause)),
                Ended::Interrupted => if let Some((path, body)) = piece.abort.clone().filter(|_| !was_asked) {
                    was_asked = true;
                    aborting = Some(Box::pin(ask_to_abort(call, dispatch, path, body)));
                },
            },
            cause = outcome_of(&mut aborting) => {
                aborting = None;
                tracing::debug!(step = %call.step, cause, "a step is not interrupted");
                call.runs_on();
            }
        }
    };
    match answer {
        Ok(Answer::Whole(parts, body)) if parts.status.is_success() => {
            match pieces.take(call, body, was_asked) {
                Assembly::Partial => Outcome::Interrupted(guard),
                Assembly::Whole(body) => Outcome::Answered(whole(call, &parts, body, guard).await),
            }
        }
        Ok(Answer::Whole(parts, body)) => Outcome::Answered(whole(call, &parts, body, guard).await),
        Ok(Answer::Stream(stream)) => {
            let instructions = taken(instructions);
            Outcome::Answered(stream.respond(call, guard, instructions, None, None))
        }
        Ok(Answer::Large(large)) if pieces.is_empty() => {
            Outcome::Answered(large.respond(call, guard))
        }
        Ok(Answer::Large(_)) => Outcome::Answered(too_large_to_join(call, guard)),
        Err(ended) => ended.outcome(dispatch, guard),
    }
}

/// Asks the engine to abort a request. Returns the obstacle: if the abort works, the request's
/// response arrives first.
async fn ask_to_abort(call: &Call, dispatch: &Dispatch, path: &'static str, body: Bytes) -> String {
    for _ in 0..ABORTS_MAX {
        let upstream = &call.app.upstream;
        let sent = upstream.send(
            Method::POST,
            &dispatch.url,
            path,
            &call.headers,
            body.clone(),
        );
        match tokio::time::timeout(ABORT_TIMEOUT, sent).await {
            Ok(Ok(answer)) if answer.status().is_success() => {}
            Ok(Ok(answer)) => return format!("the engine answered {} to {path}", answer.status()),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the engine did not answer {path}"),
        }
        tokio::time::sleep(ABORT_PAUSE).await;
    }
    format!("{path} had no effect")
}

async fn outcome_of<F: Future<Output = String>>(running: &mut Option<Pin<Box<F>>>) -> String {
    match running {
        Some(running) => running.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
