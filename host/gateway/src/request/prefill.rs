//! A step whose prompt another engine computes first, by the protocols of the engines. vLLM's prefill
//! engine answers where its cache is, and the request to the engine that generates carries that.
//! `SGLang`'s two engines get the same request at once, and meet by a number in it.

mod prompt_only;

use super::attempt::{Answer, addressed, answer_of, is_rejection, send};
use super::cause::{Cause, in_words, is_down};
use super::gathered::{Gathered, gather};
use super::generate::{Call, GatewayState};
use super::native::DAEMON;
use crate::routing::SchedulerClient;
use axum::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use hyper::http::response::Parts;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_http::{InUse, UpstreamError};
use treadle_model::{EngineKind, StepId, WorkerId, endpoint_of};
use treadle_scheduler::{Dispatch, PrefillAt};
use treadle_wire::{Endpoint, insert_fields, usage_of_body};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest answer of a prefill engine.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The field by which vLLM's engines hand caches over.
const HANDOVER: &str = "kv_transfer_params";
/// The port at which `SGLang`'s prefill engines are met, unless they report another one.
const BOOTSTRAP_PORT: u16 = 8998;
/// Numbers the bootstrap rooms of this daemon.
static ROOMS: AtomicU64 = AtomicU64::new(0);

/// A computed prompt.
struct Computed {
    /// What the other engine needs, as JSON.
    handover: String,
    prompt_tokens: u64,
    cached_tokens: Option<u64>,
}

/// Why a prefill engine did not do its part.
pub(super) enum PrefillFailure {
    /// It refused the request itself, as any other engine would.
    Refused(Box<Parts>, Bytes),
    Failed(String),
}

impl PrefillFailure {
    fn words(&self) -> String {
        match self {
            Self::Refused(parts, body) => answered_words(parts.status, body),
            Self::Failed(cause) => cause.clone(),
        }
    }

    /// The failure of an attempt.
    pub(super) fn cause(&self) -> Cause {
        format!("the prefill engine failed: {}", self.words()).into()
    }

    /// The end of an attempt whose client gets refusals.
    fn ended(self) -> Result<Answer, Cause> {
        match self {
            Self::Refused(parts, body) => Ok(Answer::Whole(*parts, body)),
            failed @ Self::Failed(_) => Err(failed.cause()),
        }
    }
}

/// The part of a prefill engine that works at the same time.
#[derive(Default)]
pub(super) struct PairedPrefill {
    failure: Option<oneshot::Receiver<PrefillFailure>>,
    task: Option<AbortHandle>,
}

impl PairedPrefill {
    /// Completes if the prefill engine does not do its part.
    pub(super) async fn failure(&mut self) -> PrefillFailure {
        let failure = match self.failure.as_mut() {
            Some(failure) => failure.await.ok(),
            None => None,
        };
        match failure {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    /// Lets it end by itself.
    pub(super) fn detach(&mut self) {
        self.task = None;
    }
}

impl Drop for PairedPrefill {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// An exchange with the engine that generates, after or beside the one that computes the prompt.
pub(super) async fn exchange(
    call: &Call,
    dispatch: &Dispatch,
    request: &Bytes,
    deadline: Instant,
) -> Result<Answer, Cause> {
    let Some(at) = &dispatch.prefill else {
        return answer_of(call, dispatch, request, deadline).await;
    };
    let (request, mut paired) = if dispatch.engine == EngineKind::Sglang {
        pair(call, dispatch, at, request)
    } else {
        let request = Box::pin(prefilled(call, dispatch, at, request)).await;
        (request, PairedPrefill::default())
    };
    let answer = tokio::select! {
        answer = Box::pin(answer_of(call, dispatch, &request, deadline)) => answer,
        failure = paired.failure() => failure.ended(),
    };
    // What is refused is not waited for.
    let is_refused = matches!(&answer, Ok(Answer::Whole(parts, _)) if !parts.status.is_success());
    if answer.is_ok() && !is_refused {
        paired.detach();
    }
    answer
}

/// The dispatch of a further request in an attempt whose prompt was computed before. `SGLang`'s
/// engine can't do without a prefill engine.
pub(super) fn again(dispatch: &Dispatch) -> Dispatch {
    let prefill = dispatch.prefill.clone();
    Dispatch {
        prefill: prefill.filter(|_| dispatch.engine == EngineKind::Sglang),
        ..dispatch.clone()
    }
}

/// The request with the place of its prompt's cache; as it was if the prefill engine fails.
async fn prefilled(call: &Call, dispatch: &Dispatch, at: &PrefillAt, request: &Bytes) -> Bytes {
    let computing = computed(call, dispatch, at, request);
    let computed = tokio::time::timeout(at.within, computing).await;
    let too_slow = || format!("it sent no response within {} s", at.within.as_secs());
    let carrying = computed
        .unwrap_or_else(|_| Err(too_slow()))
        .and_then(|computed| {
            let fields = [(HANDOVER, computed.handover.clone())];
            let carrying = insert_fields(request, &fields).ok_or("the request is no object")?;
            Ok((Bytes::from(carrying), computed))
        });
    match carrying {
        Ok((carrying, computed)) => {
            report_computed(&call.client, call.step, &computed);
            carrying
        }
        Err(cause) => {
            tracing::debug!(worker = %at.worker, %cause, "a prefill engine failed");
            report_failed(&call.client, call.step, &cause);
            request.clone()
        }
    }
}

/// Has vLLM compute a prompt and keep its cache for another engine.
async fn computed(
    call: &Call,
    dispatch: &Dispatch,
    at: &PrefillAt,
    request: &Bytes,
) -> Result<Computed, String> {
    let prompt = prompt_only::request(call.endpoint, request)?;
    let to = towards(dispatch, at);
    let response = send(call, &to, &prompt).await;
    let response = response.map_err(|cause| cause.to_string())?;
    let body = whole(&call.app, response).await;
    let body = body.map_err(|failure| failure.words())?;
    let told: Told = serde_json::from_slice(&body).unwrap_or_default();
    let handover = told.kv_transfer_params.ok_or(
        "its response has no kv_transfer_params; start the engine with --kv-transfer-config \
         '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}'",
    )?;
    let fields: Value = serde_json::from_str(handover.get()).unwrap_or_default();
    if fields["do_remote_prefill"] != true {
        return Err("it kept no cache of the prompt".to_owned());
    }
    let usage = usage_of_body(call.endpoint, &body).unwrap_or_default();
    Ok(Computed {
        handover: handover.get().to_owned(),
        prompt_tokens: usage.prompt_tokens.unwrap_or(0),
        cached_tokens: usage.cached_tokens,
    })
}

/// What a prefill engine answers beside its one token.
#[derive(Default, Deserialize)]
struct Told {
    kv_transfer_params: Option<Box<RawValue>>,
}

/// The dispatch of the part that the prefill engine does.
fn towards(dispatch: &Dispatch, at: &PrefillAt) -> Dispatch {
    Dispatch {
        worker: at.worker,
        url: at.url.clone(),
        engine: dispatch.engine,
        slot: None,
        priority: dispatch.priority,
        interruptible: false,
        prefill: None,
    }
}

/// Sends a request to `SGLang`'s prefill engine, and returns it for the other one.
pub(super) fn pair(
    call: &Call,
    dispatch: &Dispatch,
    at: &PrefillAt,
    request: &Bytes,
) -> (Bytes, PairedPrefill) {
    let met = bootstrap_fields(at).and_then(|fields| insert_fields(request, &fields));
    let Some(met) = met else {
        report_failed(&call.client, call.step, "its address is no URL with a host");
        return (request.clone(), PairedPrefill::default());
    };
    let request = Bytes::from(met);
    let part = Part {
        app: call.app.clone(),
        client: call.client.clone(),
        step: call.step,
        endpoint: call.endpoint,
        worker: at.worker,
        url: at.url.clone(),
        target: call.target.clone(),
        headers: call.headers.clone(),
        body: addressed(call, &towards(dispatch, at), &request),
    };
    let (failing, failure) = oneshot::channel();
    let task = tokio::spawn(async move {
        if let Err(failure) = part.carry_out().await {
            // The other engine would wait for it.
            let _ = failing.send(failure);
        }
    });
    let paired = PairedPrefill {
        failure: Some(failure),
        task: Some(task.abort_handle()),
    };
    (request, paired)
}

/// Where `SGLang`'s engines meet for one request.
fn bootstrap_fields(at: &PrefillAt) -> Option<[(&'static str, String); 3]> {
    let address: http::Uri = endpoint_of(&at.url).0.parse().ok()?;
    let host = address.host()?.trim_matches(['[', ']']);
    let port = at.bootstrap_port.unwrap_or(BOOTSTRAP_PORT);
    let number = ROOMS.fetch_add(1, Ordering::Relaxed);
    // Engines take a signed number of 64 bits.
    let room = xxh3_64_with_seed(&number.to_le_bytes(), *DAEMON) >> 1;
    Some([
        ("bootstrap_host", serde_json::to_string(host).ok()?),
        ("bootstrap_port", port.to_string()),
        ("bootstrap_room", room.to_string()),
    ])
}

/// What a prefill engine does while the other one waits for it.
struct Part {
    app: Arc<GatewayState>,
    client: SchedulerClient,
    step: StepId,
    endpoint: Endpoint,
    worker: WorkerId,
    url: Arc<str>,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Part {
    async fn carry_out(self) -> Result<(), PrefillFailure> {
        let (client, step) = (self.client.clone(), self.step);
        let limit = self.app.response_timeout;
        let answered = tokio::time::timeout(limit, self.answered()).await;
        let too_slow = || PrefillFailure::Failed("it took too long".to_owned());
        let answered = answered.unwrap_or_else(|_| Err(too_slow()));
        match &answered {
            Ok(computed) => report_computed(&client, step, computed),
            Err(PrefillFailure::Failed(cause)) => report_failed(&client, step, cause),
            // The engine is not at fault.
            Err(PrefillFailure::Refused(..)) => {}
        }
        answered.map(|_| ())
    }

    async fn answered(self) -> Result<Computed, PrefillFailure> {
        let upstream = &self.app.upstream;
        let sent = upstream.send(
            Method::POST,
            &self.url,
            &self.target,
            &self.headers,
            self.body,
        );
        let sent = sent.await.map_err(|error| {
            let cause = error.to_string();
            if matches!(error, UpstreamError::Connect(_)) {
                is_down(&self.client, self.worker, &cause);
            }
            PrefillFailure::Failed(cause)
        });
        let body = whole(&self.app, sent?).await?;
        let usage = usage_of_body(self.endpoint, &body).unwrap_or_default();
        Ok(Computed {
            handover: String::new(),
            prompt_tokens: usage.prompt_tokens.unwrap_or(0),
            cached_tokens: usage.cached_tokens,
        })
    }
}

/// The body of a successful response.
async fn whole(app: &GatewayState, response: Response<Incoming>) -> Result<Bytes, PrefillFailure> {
    let (parts, body) = response.into_parts();
    let room = InUse::new([app.room.answers.clone()]);
    let body = match gather(&parts, body, ANSWER_BYTES_MAX, room).await {
        Ok(Gathered::Whole(body)) => body,
        Ok(Gathered::Large { .. }) => {
            let most = ANSWER_BYTES_MAX >> 20;
            let cause = format!("its response exceeds {most} MiB, or memory for responses is full");
            return Err(PrefillFailure::Failed(cause));
        }
        Err(cause) => return Err(PrefillFailure::Failed(cause.to_string())),
    };
    if parts.status.is_success() {
        return Ok(body);
    }
    if is_rejection(parts.status) {
        return Err(PrefillFailure::Refused(Box::new(parts), body));
    }
    Err(PrefillFailure::Failed(answered_words(parts.status, &body)))
}

fn answered_words(status: StatusCode, body: &[u8]) -> String {
    format!("it answered {status}{}", in_words(body))
}

fn report_computed(client: &SchedulerClient, step: StepId, computed: &Computed) {
    client.event(Event::Program(ProgramEvent::StepPrefilled {
        step,
        prompt_tokens: computed.prompt_tokens,
        cached_tokens: computed.cached_tokens,
    }));
}

fn report_failed(client: &SchedulerClient, step: StepId, cause: &str) {
    client.event(Event::Program(ProgramEvent::StepPrefillFailed {
        step,
        cause: cause.into(),
    }));
}
