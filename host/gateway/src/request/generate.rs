//! Generation endpoints: identify, wait for placement, forward.

use super::attempt::{Outcome, next_instruction};
use super::begin::{begun, is_captured};
use super::isolation::{isolate, salted};
use super::native::Pieces;
use super::refusal::{aborted, interrupted, live_programs_full, refused, stopped};
use super::responses::{ResponsesCall, attempt_by_path, read};
use super::waiting::{Waits, answered};
use crate::Metrics;
use crate::bodies::{PayloadCapture, PayloadWriter};
use crate::captures::Captures;
use crate::excerpt::excerpt_of;
use crate::guard::StepGuard;
use crate::headers::{for_engines, query_for_engines};
use crate::identity::{Identities, Identity};
use crate::model_names::not_found;
use crate::requests::{Registration, RequestIds};
use crate::responses::Responses;
use crate::routing::{Scheduler, SchedulerClient};
use crate::trace::StepTrace;
use crate::withdraw::withdrawable;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_auth::{CacheSalts, Principal};
use treadle_core::Event;
use treadle_core::memory::PrefixSegment;
use treadle_core::programs::{ProgramEvent, PromptText, StepArrival};
use treadle_core::training::MemberRef;
use treadle_engines::transfers::Prompts;
use treadle_http::body::{self, BodyLimits};
use treadle_http::{Bounded, InUse, Upstream, error_response};
use treadle_model::{EngineKind, NAME_BYTES_MAX, StepId, Tenant};
use treadle_scheduler::{Excerpts, Instruction, LiveLimit};
use treadle_trust::public_host;
use treadle_wire::{Endpoint, ErrorBody, ErrorCode, RequestHead};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Larger bodies are parsed in `block_in_place`.
pub(crate) const PARSE_INLINE_BYTES_MAX: usize = 1 << 20;

/// State that all requests share.
pub struct GatewayState {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The client for engines.
    pub upstream: Upstream,
    /// Recognises programs that clients don't name.
    pub identities: Identities,
    /// Requests by their clients' ids.
    pub requests: Arc<RequestIds>,
    /// State of `/v1/responses`.
    pub responses: Arc<Responses>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Largest request body, in bytes.
    pub body_bytes_max: usize,
    /// Unknown fields that are passed to engines.
    pub pass_fields: Vec<String>,
    /// Salts of tenants' prefix caches.
    pub salts: Arc<CacheSalts>,
    /// Largest response that is buffered before any of it is relayed, in bytes.
    pub answer_bytes_max: usize,
    /// Longest pause within a request body.
    pub body_timeout: Duration,
    /// Limits that all requests share.
    pub room: Room,
    /// Stores requests and responses, if enabled.
    pub bodies: Option<Arc<PayloadWriter>>,
    /// Pause of a stream after which a keepalive is sent; zero for never.
    pub keep_alive: Duration,
    /// Longest wait for the head of an engine's response.
    pub response_timeout: Duration,
    /// Longest wait for the head of an engine's response to a request that is not a step.
    pub forward_timeout: Duration,
    /// Stores the last request of each program, if engines can transfer its cache.
    pub prompts: Option<Arc<Prompts>>,
    /// Excerpts of prompts for a prediction service.
    pub excerpts: Arc<Excerpts>,
    /// Stores the tokens of training runs; `None` in a cluster.
    pub captures: Option<Arc<Captures>>,
}

/// Limits that all requests share, with a part for each tenant.
pub struct Room {
    /// Bytes of request bodies in memory.
    pub bodies: Bounded,
    /// Bytes of buffered responses.
    pub answers: Bounded,
    /// Most concurrent steps, waiting and running.
    pub steps_max: u64,
    /// Most live programs.
    pub programs_max: u64,
}

/// One request in progress.
pub(super) struct Call {
    pub(super) app: Arc<GatewayState>,
    /// The client for the scheduler of the program's job.
    pub(super) client: SchedulerClient,
    pub(super) endpoint: Endpoint,
    /// Path and query at the engine.
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) head: RequestHead,
    /// Its place in a training run, if it names a group.
    pub(super) member: Option<MemberRef>,
    /// Its tokens are captured.
    pub(super) is_captured: bool,
    /// The program's internal name.
    pub(super) program: Arc<str>,
    /// The job's internal name.
    pub(super) job: Arc<str>,
    pub(super) step: StepId,
    pub(super) trace: StepTrace,
    pub(super) principal: Arc<Principal>,
    /// Salt of its prefix cache, if tenants share engines.
    pub(super) salt: Option<String>,
    /// State of a request to `/v1/responses`.
    pub(super) responses: Option<ResponsesCall>,
    /// The permit for its body's bytes.
    pub(super) room: Arc<InUse<2>>,
}

impl Call {
    /// Stores the request for the transfer executor: llama.cpp finds the cache by its slot, whose
    /// content is compared with the tokens of the request.
    fn remember(&self, engine: EngineKind) {
        if let Some(prompts) = &self.app.prompts
            && (engine != EngineKind::Llamacpp || self.endpoint == Endpoint::Completions)
        {
            let body = salted(self.salt.as_deref(), engine, self.endpoint, &self.body);
            prompts.remember(&self.program, &self.target, &body);
        }
    }

    /// Notes that it was interrupted and will be resumed.
    pub(super) fn interrupted(&self) {
        self.app.metrics.step_interrupted();
        self.trace.waits();
        let step = self.step;
        let interrupted = ProgramEvent::StepInterrupted { step };
        self.client.event(Event::Program(interrupted));
    }

    /// Notes a failed attempt that may be repeated.
    fn attempt_failed(&self) {
        self.app.metrics.attempt_failed();
        self.trace.waits();
    }

    /// Notifies the scheduler that it can't be interrupted.
    pub(super) fn runs_on(&self) {
        let runs_on = ProgramEvent::StepRunsOn { step: self.step };
        self.client.event(Event::Program(runs_on));
    }

    /// The storage for the step's bodies, if enabled.
    pub(super) fn capture(&self) -> Option<PayloadCapture> {
        Some(PayloadCapture {
            bodies: self.app.bodies.clone()?,
            job: self.job.clone(),
            program: self.program.clone(),
            step: self.step,
            request: self.body.clone(),
        })
    }
}

/// Handles a generation request: identify, schedule, forward, and relay the response. `session` is
/// the one in the URL.
pub async fn generate(
    app: Arc<GatewayState>,
    endpoint: Endpoint,
    session: Option<String>,
    request: Request,
) -> Response {
    let metrics = app.metrics.clone();
    let started = std::time::Instant::now();
    match accept(app, endpoint, session, request).await {
        Ok((call, arrival, room)) => {
            let waits = Waits::of(&call);
            let answer = async move {
                let response = carry(call, arrival, room).await;
                metrics.answered(endpoint, response.status(), started.elapsed());
                response
            };
            answered(waits, answer).await
        }
        Err(error) => {
            let response = error_response(&error);
            metrics.answered(endpoint, response.status(), started.elapsed());
            response
        }
    }
}

/// Reads and parses a request completely, before anything is scheduled.
async fn accept(
    app: Arc<GatewayState>,
    endpoint: Endpoint,
    session: Option<String>,
    request: Request,
) -> Result<(Call, StepArrival, InUse<1>), ErrorBody> {
    let (mut parts, payload) = request.into_parts();
    let principal = crate::principal_of(&parts)?;
    let step_room = step_room(&app, &principal)?;
    let (body, mut body_room) =
        body::read(&mut parts.headers, payload, body_limits(&app, &principal)).await?;
    let (body, responses, mut head) = if body.len() > PARSE_INLINE_BYTES_MAX {
        tokio::task::block_in_place(|| read(&app, &principal, endpoint, body, &mut body_room))?
    } else {
        read(&app, &principal, endpoint, body, &mut body_room)?
    };
    let is_alone = principal.is_alone();
    head.foreign.check(&app.pass_fields, is_alone)?;
    head.media.check(&app.pass_fields, is_alone, public_host)?;
    if let Some(model) = head
        .model
        .as_deref()
        .filter(|name| name.len() > NAME_BYTES_MAX)
    {
        return Err(not_found(model, []));
    }
    let (body, salt) = isolate(&app.salts, &principal, &mut head, body);
    let step = app.scheduler.step_id();
    let tenant = &principal.tenant.tenant;
    let identity =
        app.identities
            .resolve(tenant, session.as_deref(), &parts.headers, &head, step)?;
    if let Some(responses) = &responses {
        responses.check_program(principal.outside(&identity.program))?;
    }
    let target = format!("{}{}", endpoint.path(), query_for_engines(&parts.uri));
    let arrival = arrival(step, &identity, &head, tenant);
    if app.excerpts.permits(&identity.job) {
        app.excerpts
            .put(&identity.job, &identity.program, excerpt_of(&body));
    }
    let member = member_of(&identity);
    let program = identity.program;
    let model = known_model(head.model.as_deref());
    let job = &*identity.job;
    let trace = StepTrace::begin(endpoint, model, &program, job, step, &parts.headers);
    let headers = for_engines(&parts.headers, &app.pass_fields, is_alone);
    let client = app.scheduler.client(&identity.job);
    Ok((
        Call {
            app,
            client,
            endpoint,
            target,
            headers,
            body,
            head,
            member,
            is_captured: false,
            program,
            job: identity.job,
            step,
            trace,
            principal,
            salt,
            responses,
            room: Arc::new(body_room),
        },
        arrival,
        step_room,
    ))
}

/// The place of a program in a training run, if it names a group.
fn member_of(identity: &Identity) -> Option<MemberRef> {
    let group = identity.group.as_ref()?;
    Some(MemberRef {
        job: identity.job.as_ref().into(),
        group: group.as_str().into(),
        program: identity.program.as_ref().into(),
    })
}

/// Limits on a body of this caller.
pub(crate) fn body_limits(app: &GatewayState, principal: &Principal) -> BodyLimits {
    let tenant = &principal.tenant;
    let own_max = principal.share(tenant.limits.bodies_bytes, app.room.bodies.1);
    BodyLimits {
        bytes_max: principal.body_bytes_max(app.body_bytes_max),
        pause_max: app.body_timeout,
        in_use: InUse::new([
            app.room.bodies.clone(),
            (tenant.bodies_bytes.clone(), own_max),
        ]),
    }
}

/// A permit for one more step of this caller.
fn step_room(app: &GatewayState, principal: &Principal) -> Result<InUse<1>, ErrorBody> {
    let tenant = &principal.tenant;
    let max = principal.share(tenant.limits.steps, app.room.steps_max);
    let mut room = InUse::new([(tenant.steps.clone(), max)]);
    room.grow(1).map_err(|_| {
        let message = format!(
            "the tenant `{}` has {max} steps in progress; send fewer at once, or have the tenant's \
             `steps` raised",
            tenant.tenant.name()
        );
        ErrorBody::new(ErrorCode::TenantBusy, message)
    })?;
    Ok(room)
}

fn arrival(step: StepId, identity: &Identity, head: &RequestHead, tenant: &Tenant) -> StepArrival {
    // Equal prompts of two tenants share no KV, so their prefixes must differ.
    let of_tenant = match tenant.prefix() {
        "" => 0,
        prefix => xxh3_64(prefix.as_bytes()),
    };
    let segment = |s: &treadle_wire::PrefixSegment| PrefixSegment {
        hash: s.hash ^ of_tenant,
        tokens: s.tokens.unwrap_or(0),
    };
    let text = || PromptText {
        model: known_model(head.model.as_deref()).into(),
        messages: head.prompt.messages,
        prefix_bytes: head.prefix.iter().map(|s| s.bytes).collect(),
    };
    StepArrival {
        step,
        program: identity.program.as_ref().into(),
        job: identity.job.as_ref().into(),
        prompt_tokens: head.prompt.tokens.unwrap_or(0),
        exact: head.prompt.tokens.is_some(),
        prompt_bytes: head.prompt.bytes,
        text: head.prompt.tokens.is_none().then(text),
        output_tokens_max: head.max_output_tokens,
        prefix: head.prefix.iter().map(segment).collect(),
        one_shot: identity.one_shot,
        inferred: identity.inferred,
        parent: identity.parent.clone(),
        group: group_of(identity, head, of_tenant),
        model: head.model.as_deref().map(Box::from),
    }
}

/// A number that programs of one group share: those with the same group name within a job, which is
/// stable over restarts, else those of a tenant with equal prompts.
fn group_of(identity: &Identity, head: &RequestHead, of_tenant: u64) -> Option<u64> {
    let Some(name) = &identity.group else {
        return head.whole.map(|whole| whole ^ of_tenant);
    };
    Some(xxh3_64_with_seed(
        name.as_bytes(),
        xxh3_64(identity.job.as_bytes()),
    ))
}

/// The model's name under which the cost of prompts is learned. Invalid and too long names share
/// the estimates of requests without a model: no engine serves them.
fn known_model(model: Option<&str>) -> &str {
    let model = model.unwrap_or("");
    if model.len() > NAME_BYTES_MAX || model.contains(char::is_control) {
        ""
    } else {
        model
    }
}

/// Carries a step from the queue to a response.
async fn carry(mut call: Call, arrival: StepArrival, room: InUse<1>) -> Response {
    let step = arrival.step;
    let mut guard = StepGuard::new(call.client.clone(), step, call.trace.clone(), room);
    let tenant = &call.principal.tenant;
    let own = tenant.limits.live_programs;
    let is_limited = own.is_some() || !call.principal.is_alone();
    let live = is_limited.then(|| LiveLimit {
        tenant: tenant.tenant.clone(),
        programs_max: call.principal.share(own, call.app.room.programs_max),
    });
    let id = call.head.request_id.clone();
    let id = call.principal.inside(&id.unwrap_or_else(|| step.into()));
    // First, so that the step can be aborted as soon as it is known.
    let registration = call.app.requests.register(&id);
    if let Err(error) = begun(&call).await {
        guard.settle();
        return error_response(&error);
    }
    call.is_captured = is_captured(&call).await;
    let Ok(instructions) = call.client.submit(arrival, live) else {
        // It was never accepted, so there is nothing to cancel.
        guard.settle();
        return stopped();
    };
    follow(&Arc::new(call), instructions, guard, Arc::new(registration)).await
}

/// Follows the scheduler's instructions until there is a response.
async fn follow(
    call: &Arc<Call>,
    mut instructions: UnboundedReceiver<Instruction>,
    mut guard: StepGuard,
    registration: Arc<Registration>,
) -> Response<Body> {
    // The instruction that ended the step while an attempt was running.
    let mut last_instruction = None;
    let (mut pieces, mut busy) = (Pieces::default(), None);
    loop {
        let instruction = tokio::select! {
            biased;
            () = registration.withdrawn(false) => return aborted(call, &pieces),
            instruction = next_instruction(&mut instructions, &mut last_instruction) => instruction,
        };
        match instruction {
            Some(Instruction::Dispatch(dispatch)) => {
                call.remember(dispatch.engine);
                // SGLang is asked to abort and responds with its output so far; other engines
                // notice the closed connection.
                let answers_aborts = dispatch.engine == EngineKind::Sglang;
                let last = &mut last_instruction;
                let attempt =
                    attempt_by_path(call, &dispatch, &mut instructions, guard, last, &mut pieces);
                let outcome = tokio::select! {
                    outcome = Box::pin(attempt) => outcome,
                    () = registration.withdrawn(answers_aborts) => {
                        return aborted(call, &pieces);
                    }
                };
                match outcome {
                    Outcome::Answered(response) => {
                        let endpoint = call.endpoint;
                        return withdrawable(response, registration, endpoint, answers_aborts);
                    }
                    Outcome::Interrupted(unsettled) => {
                        guard = unsettled;
                        if registration.is_withdrawn() {
                            return aborted(call, &pieces);
                        }
                        call.interrupted();
                    }
                    Outcome::Failed(unsettled, told) => {
                        (guard, busy) = (unsettled, told);
                        call.attempt_failed();
                    }
                    Outcome::Unserved(unsettled, _) => {
                        guard = unsettled;
                        call.attempt_failed();
                    }
                }
            }
            Some(Instruction::Refuse(refusal)) => {
                guard.settle();
                return refused(call, &refusal, busy);
            }
            Some(Instruction::Forget) => {
                guard.settle();
                return interrupted();
            }
            Some(Instruction::RefuseLive { programs_max }) => {
                guard.settle();
                return live_programs_full(call, programs_max);
            }
            // The attempt that it concerned has ended already.
            Some(Instruction::Abort(_) | Instruction::Cut | Instruction::Preempt) => {}
            None => return stopped(),
        }
    }
}

#[cfg(test)]
mod tests;
