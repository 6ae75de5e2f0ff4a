//! Projections of events and state to rows: the only code that uses both the core's types and the
//! store's.

use crate::record;
use treadle_core::bindings::{BindingEvent, BoundPolicy};
use treadle_core::programs::{About, ProgramEvent, Refusal, RefusedStep};
use treadle_core::programs::{Decision, Program, Worker};
use treadle_core::{Core, DaemonEvent, Event, Origin};
use treadle_model::{End, GatewayId, ProgramId, Role, Status, StepId, Timestamp, WorkerId};
use treadle_policy::evaluator::EVERYONE;
use treadle_store::{
    BindingRow, BindingSet, DecisionRow, EventRow, ProgramRow, RewardRow, StepRow, WorkerRow,
};

/// The subject of an event.
#[derive(Default)]
pub(crate) struct Subject {
    pub(crate) program: Option<ProgramId>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) job: Option<Box<str>>,
    pub(crate) step: Option<StepId>,
    pub(crate) worker: Option<WorkerId>,
}

impl Subject {
    /// Determines the subject before the core handles the event.
    pub(crate) fn of(core: &Core, event: &Event) -> Self {
        match event {
            Event::Program(event) => Self::of_program_event(core, event),
            Event::Action(event) => super::actions::subject(core, event),
            Event::Binding(change) => Self {
                job: Some(change.target().1)
                    .filter(|scope| *scope != EVERYONE)
                    .map(Into::into),
                ..Self::default()
            },
            Event::Training(event) => Self {
                job: Some(event.job().into()),
                key: event.member().map(|member| member.program.clone()),
                ..Self::default()
            },
            Event::Weights(event) => Self {
                job: Some(event.job().into()),
                worker: event.worker(),
                ..Self::default()
            },
            Event::Daemon(_) => Self::default(),
        }
    }

    fn of_program_event(core: &Core, event: &ProgramEvent) -> Self {
        match event.about() {
            About::Arrival(arrival) => Self {
                // A new program gets the next id.
                program: core
                    .programs()
                    .program(&arrival.program)
                    .map(|p| p.id)
                    .or(Some(ProgramId(core.programs().next_program))),
                key: Some(arrival.program.clone()),
                job: Some(arrival.job.clone()),
                step: Some(arrival.step),
                worker: None,
            },
            About::Step(step) => Self::of_step(core, step),
            About::Key(program) => {
                let live = core.programs().program(program);
                let rewarded = matches!(event, ProgramEvent::ProgramRewarded { .. });
                let member = core.training().members.get(program);
                // Rewards come after the end too.
                let of_ended = || Self {
                    key: rewarded.then(|| program.into()),
                    job: member.filter(|_| rewarded).map(|(job, _)| job.clone()),
                    ..Self::default()
                };
                live.map_or_else(of_ended, Self::of_program)
            }
            About::Program(program) => {
                let program = core.programs().live.get(&program);
                program.map(Self::of_program).unwrap_or_default()
            }
            About::Worker(worker) => Self {
                worker: Some(worker),
                ..Self::default()
            },
            About::Daemon => Self::default(),
        }
    }

    fn of_step(core: &Core, step: StepId) -> Self {
        let program = core.programs().steps.get(&step).map(|s| s.program);
        let program = program.and_then(|id| core.programs().live.get(&id));
        let subject = program.map(Self::of_program).unwrap_or_default();
        Self {
            step: Some(step),
            ..subject
        }
    }

    fn of_program(program: &Program) -> Self {
        Self {
            program: Some(program.id),
            key: Some(program.key.clone()),
            job: Some(program.job.clone()),
            ..Self::default()
        }
    }
}

/// Further programs that an event changes, determined before the core handles it: those whose steps
/// end with their connections, and those placed on a worker that leaves.
pub(crate) fn changed_beside(core: &Core, event: &Event) -> Vec<ProgramId> {
    let state = core.programs();
    let gateway = match event {
        Event::Daemon(DaemonEvent::DaemonRestarted) => GatewayId::LOCAL,
        Event::Daemon(DaemonEvent::GatewayLost { gateway }) => *gateway,
        Event::Program(
            ProgramEvent::WorkerLost { worker, .. } | ProgramEvent::WorkerRemoved { worker },
        ) => {
            let worker = state.workers.get(worker);
            return worker.map_or_else(Vec::new, |w| w.programs.iter().copied().collect());
        }
        _ => return Vec::new(),
    };
    let steps = state.steps.iter();
    let ended = steps.filter(|(step, _)| step.gateway() == gateway);
    ended.map(|(_, step)| step.program).collect()
}

pub(crate) fn event_row(
    seq: u64,
    at: Timestamp,
    event: &Event,
    origin: Option<Origin>,
    subject: &Subject,
) -> EventRow {
    EventRow {
        seq,
        at_us: at.0,
        kind: event.kind().into(),
        job: subject.job.as_deref().unwrap_or("default").into(),
        program: subject.key.as_deref().map(Into::into),
        body: record::encode(event, origin),
    }
}

pub(crate) fn program_row(
    p: &Program,
    core: &Core,
    now: Timestamp,
    ended: Option<End>,
) -> ProgramRow {
    let worker = p
        .placement
        .and_then(|place| core.programs().workers.get(&place.worker));
    let status = match ended {
        None => p.status,
        Some(End::Aborted) => Status::Aborted,
        Some(End::Released | End::Expired) => Status::Finished,
    };
    ProgramRow {
        program: p.key.to_string(),
        job: p.job.to_string(),
        parent: p.parent.as_deref().map(Into::into),
        status: status.as_str().into(),
        phase: p.phase.as_str().into(),
        worker: worker.map(|w| w.url.to_string()),
        context_tokens: p.context_tokens,
        steps: u64::from(p.steps_finished),
        tokens_total: p.prompt_tokens_total + p.output_tokens_total,
        output_tokens: Some(p.output_tokens_total),
        created_at_us: p.opened_at.0,
        updated_at_us: now.0,
        ended: ended.map(|end| end.as_str().into()),
        reward_millionths: p.reward_millionths,
        blocked_us: Some(p.blocked(now).micros()),
    }
}

/// The row of a reported reward for a program that is no longer live.
pub(crate) fn reward_row(event: &Event, subject: &Subject) -> Option<RewardRow> {
    let Event::Program(ProgramEvent::ProgramRewarded {
        program,
        reward_millionths,
    }) = event
    else {
        return None;
    };
    subject.program.is_none().then(|| RewardRow {
        program: program.to_string(),
        reward_millionths: *reward_millionths,
    })
}

pub(crate) fn worker_row(w: &Worker, now: Timestamp) -> WorkerRow {
    WorkerRow {
        worker: w.id.to_string(),
        url: w.url.to_string(),
        kind: w.engine.as_str().into(),
        status: if w.is_healthy() { "healthy" } else { "lost" }.into(),
        capacity_tokens: w.capacity.tokens,
        used_tokens: w.used_tokens(),
        added_at_us: now.0,
        updated_at_us: now.0,
    }
}

/// The roles of the binding that was changed.
pub(crate) fn binding_set(core: &Core, change: &BindingEvent) -> BindingSet {
    let (world, job) = change.target();
    let roles = core.bindings().roles(world, job);
    let row = |(role, bound): (&Role, &BoundPolicy)| BindingRow {
        job: job.to_owned(),
        world: world.as_str().to_owned(),
        role: role.as_str().to_owned(),
        digest: bound.digest.to_string(),
        config: bound.config.to_string(),
        share_ppm: bound.share_ppm,
        since_us: bound.since.0,
    };
    BindingSet {
        job: job.to_owned(),
        world: world.as_str().to_owned(),
        roles: roles.into_iter().flatten().map(row).collect(),
    }
}

pub(crate) fn decision_row(seq: u64, decision: &Decision) -> DecisionRow {
    DecisionRow {
        seq,
        at_us: decision.at.0,
        kind: decision.kind.as_str().into(),
        program: Some(decision.key.to_string()),
        worker: Some(decision.worker.to_string()),
        policy: decision.policy.to_string(),
        why: serde_json::to_string(decision).unwrap_or_default(),
    }
}

/// The rows of the steps that this event ends, from the core's state before it.
pub(crate) fn step_rows(core: &Core, event: &Event, now: Timestamp) -> Vec<StepRow> {
    let gateway = match event {
        Event::Program(ProgramEvent::StepFinished { step, finish, .. }) => {
            return Vec::from_iter(step_row(core, *step, event, now, (finish.as_str(), None)));
        }
        Event::Program(ProgramEvent::StepFailed { step, failure }) => {
            let what = if failure.rejected {
                "refused"
            } else {
                "failed"
            };
            let outcome = (what, Some(failure.cause.to_string()));
            return Vec::from_iter(step_row(core, *step, event, now, outcome));
        }
        Event::Program(ProgramEvent::StepCancelled { step }) => {
            return Vec::from_iter(step_row(core, *step, event, now, ("cancelled", None)));
        }
        Event::Daemon(DaemonEvent::DaemonRestarted) => GatewayId::LOCAL,
        Event::Daemon(DaemonEvent::GatewayLost { gateway }) => *gateway,
        _ => return Vec::new(),
    };
    let steps = core.programs().steps.keys().copied();
    let ended = steps.filter(|step| step.gateway() == gateway);
    let cause = || Some("the daemon that served it stopped".to_owned());
    let row = |step| step_row(core, step, event, now, ("interrupted", cause()));
    ended.filter_map(row).collect()
}

/// The row of a step that was refused after waiting.
pub(crate) fn refused_row(
    id: StepId,
    refusal: &Refusal,
    was: RefusedStep,
    now: Timestamp,
) -> StepRow {
    let RefusedStep {
        program,
        output_tokens_total,
        step,
    } = was;
    StepRow {
        step: id.0,
        program: program.into(),
        worker: None,
        arrived_at_us: step.arrived_at.0,
        dispatched_at_us: step.dispatched_at.map(|at| at.0),
        first_token_at_us: step.first_token_at.map(|at| at.0),
        finished_at_us: Some(now.0),
        prompt_tokens: step.prompt_tokens,
        output_tokens: step.output_tokens,
        cached_tokens: None,
        outcome: "refused".into(),
        waited_us: step
            .dispatched_at
            .unwrap_or(now)
            .since(step.arrived_at)
            .micros(),
        cause: Some(refusal.to_string()),
        output_tokens_total: Some(output_tokens_total),
        predicted_tokens: None,
        predicted_tokens_p90: None,
        weight_version: None,
    }
}

fn step_row(
    core: &Core,
    step: StepId,
    event: &Event,
    now: Timestamp,
    (outcome, cause): (&str, Option<String>),
) -> Option<StepRow> {
    let s = core.programs().steps.get(&step)?;
    let program = core.programs().live.get(&s.program)?;
    let worker = match s.state {
        treadle_core::programs::StepState::Running { worker, .. } => core
            .programs()
            .workers
            .get(&worker)
            .map(|w| w.url.to_string()),
        treadle_core::programs::StepState::Waiting => None,
    };
    let (tokens, weights) = match event {
        Event::Program(ProgramEvent::StepFinished {
            tokens, weights, ..
        }) => (Some(*tokens), weights.as_deref()),
        _ => (None, None),
    };
    let generated = tokens.map_or(0, |t| t.output);
    Some(StepRow {
        step: step.0,
        program: program.key.to_string(),
        worker,
        arrived_at_us: s.arrived_at.0,
        dispatched_at_us: s.dispatched_at.map(|at| at.0),
        first_token_at_us: s.first_token_at.map(|at| at.0),
        finished_at_us: Some(now.0),
        prompt_tokens: tokens.map_or(s.prompt_tokens, |t| s.prompt_of(t)),
        output_tokens: tokens.map_or(s.output_tokens, |t| t.output),
        cached_tokens: tokens.and_then(|t| t.cached),
        outcome: outcome.into(),
        waited_us: s.dispatched_at.unwrap_or(now).since(s.arrived_at).micros(),
        cause,
        output_tokens_total: Some(program.output_tokens_total.saturating_add(generated)),
        predicted_tokens: None,
        predicted_tokens_p90: None,
        weight_version: weights.map(Into::into),
    })
}
