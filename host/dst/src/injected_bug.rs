//! Injected bugs: deliberate faults of the parts that must not have any, to check that the rules
//! find them.

use treadle_core::worker::QueuedStep;
use treadle_core::{Command, Core, CoreConfig, Event, State};
use treadle_model::{Span, WorkerId};

macro_rules! injected_bugs {
    ($($(#[$doc:meta])* $kind:ident => $name:literal),+ $(,)?) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum InjectedBug {
            $($(#[$doc])* $kind),+
        }

        impl InjectedBug {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }
    };
}

injected_bugs! {
    /// Recovery leaves a committed event out.
    RecoveryDropsEvent => "recovery-drops-event",
    /// Recovery replays with the time of recovery instead of the event's.
    RecoveryMixesTimes => "recovery-mixes-times",
    /// A release is acknowledged before its event is committed.
    AckBeforeCommit => "ack-before-commit",
    /// Now and then a step is sent to a second worker.
    DispatchTwice => "dispatch-twice",
    /// Now and then an order to send a step is forgotten.
    ForgetDispatch => "forget-dispatch",
    /// Now and then a waiting step is forgotten.
    ForgetWaitingStep => "forget-waiting-step",
    /// Now and then a placement is charged twice.
    DoubleCharge => "double-charge",
    /// Programs are admitted beyond the watermark.
    Overcommit => "overcommit",
    /// No program is ever starved: the policy's order is used however long a program waits.
    SkipQueueOrder => "skip-queue-order",
    /// Steps may wait for twice their bound.
    WaitTooLong => "wait-too-long",
    /// The publisher's cursor moves before its messages are confirmed.
    CursorBeforeConfirm => "cursor-before-confirm",
    /// The consumer counts what comes twice.
    ConsumerCountsTwice => "consumer-counts-twice",
    /// A transaction that was in doubt is taken to be committed.
    DoubtIsCommit => "doubt-is-commit",
    /// The result of a cancelled transfer is taken for that of the next one.
    StaleTransfers => "stale-transfers",
    /// Now and then a copy in host memory is not dropped.
    ForgetDrop => "forget-drop",
    /// Transfers are not cancelled.
    ForgetCancel => "forget-cancel",
    /// Host memory is taken to be twice as large.
    HostOvercommit => "host-overcommit",
    /// Offloads take the whole of their link.
    LinkHog => "link-hog",
    /// Two caches go to one worker at once.
    MoveTwice => "move-twice",
    /// Transfers may take ten times as long.
    TransferTooLong => "transfer-too-long",
    /// Caches are not brought back.
    ForgetLoad => "forget-load",
    /// Engines are sent one step more than they are to be sent.
    LineTooLong => "line-too-long",
    /// Lines are served from their ends.
    LineReversed => "line-reversed",
    /// Programs begin whatever the memory.
    BeginAnyway => "begin-anyway",
    /// Steps are never preempted.
    PreemptForNobody => "preempt-for-nobody",
}

/// A tampering core tampers once in so many events.
const TAMPER_EVENTS: u64 = 50;

impl InjectedBug {
    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The settings that the core gets in truth.
    pub(crate) fn config(injected_bug: Option<Self>, config: &CoreConfig) -> CoreConfig {
        let mut config = config.clone();
        match injected_bug {
            Some(Self::Overcommit) => config.low_watermark_ppm *= 2,
            Some(Self::SkipQueueOrder) => {
                config.deferral_min = Span::from_secs(1_000_000);
                config.deferral_max = config.deferral_min;
            }
            Some(Self::WaitTooLong) => config.queue_wait_max.0 *= 2,
            Some(Self::HostOvercommit) => config.kv.host_tokens_max *= 2,
            Some(Self::LinkHog) => config.kv.offload_link_ppm = 1_000_000,
            Some(Self::TransferTooLong) => config.kv.transfer_max.0 *= 10,
            Some(Self::LineTooLong) if config.rollout.engine_steps_max > 0 => {
                config.rollout.engine_steps_max += 1;
            }
            Some(Self::BeginAnyway) => config.rollout.memory_ppm *= 4,
            _ => {}
        }
        config
    }

    /// Changes what the core did.
    pub(crate) fn tamper(
        self,
        core: &mut Core,
        commands: &mut Vec<Command>,
        _: &Event,
        events: u64,
    ) {
        match self {
            Self::DispatchTwice if events.is_multiple_of(7) => {
                let dispatch = |c: &&Command| matches!(c, Command::DispatchStep { .. });
                let again = commands.iter().find(dispatch).cloned();
                commands.extend(again);
            }
            Self::ForgetWaitingStep if events.is_multiple_of(TAMPER_EVENTS) => {
                let mut state = core.state().clone();
                let waits = |s: &treadle_core::step::Step| s.state.worker().is_none();
                let found = state
                    .steps
                    .iter()
                    .find(|(_, s)| waits(s))
                    .map(|(id, _)| *id);
                if let Some(step) = found {
                    state.steps.remove(&step);
                    replace(core, state);
                }
            }
            Self::DoubleCharge if events.is_multiple_of(TAMPER_EVENTS) => {
                let mut state = core.state().clone();
                let charged = state.workers.iter().find(|(_, w)| w.charged_tokens > 0);
                if let Some(worker) = charged.map(|(id, _)| *id) {
                    double(&mut state, worker);
                    replace(core, state);
                }
            }
            Self::ForgetDrop if events.is_multiple_of(5) => {
                commands.retain(|c| !matches!(c, Command::DropCopy { .. }));
            }
            Self::ForgetCancel => {
                commands.retain(|c| !matches!(c, Command::CancelTransfer { .. }));
            }
            Self::ForgetLoad => {
                commands.retain(|c| !matches!(c, Command::LoadProgram { .. }));
            }
            Self::MoveTwice => move_twice(core.state(), commands),
            Self::LineReversed => {
                let mut state = core.state().clone();
                if reverse_run_queues(&mut state) {
                    replace(core, state);
                }
            }
            Self::PreemptForNobody if events.is_multiple_of(TAMPER_EVENTS) => {
                let runs = |s: &treadle_core::step::Step| s.state.worker().is_some();
                let mut steps = core.state().steps.iter();
                let running = steps.find(|(_, s)| runs(s)).map(|(step, _)| *step);
                commands.extend(running.map(|step| Command::PreemptStep { step }));
            }
            _ => {}
        }
    }
}

/// Another program goes where one goes.
fn move_twice(state: &State, commands: &mut Vec<Command>) {
    let moves = |c: &&Command| matches!(c, Command::MigrateProgram { .. });
    let Some(Command::MigrateProgram {
        program,
        from,
        to,
        from_slot,
        to_slot,
        ..
    }) = commands.iter().find(moves).cloned()
    else {
        return;
    };
    let idle = state.workers.get(&from).into_iter().flat_map(|w| &w.idle);
    let other = idle
        .filter(|other| **other != program)
        .find_map(|id| state.programs.get(id));
    commands.extend(other.map(|other| Command::MigrateProgram {
        program: other.id,
        from,
        to,
        from_slot,
        to_slot,
        tokens: other.context_tokens,
    }));
}

/// The last in a line and the first trade their priorities.
fn reverse_run_queues(state: &mut State) -> bool {
    let mut changed = false;
    for w in state.workers.values_mut() {
        let (Some(first), Some(last)) = (w.line.first().copied(), w.line.last().copied()) else {
            continue;
        };
        if first.priority == last.priority {
            continue;
        }
        changed = true;
        for (queued_step, priority) in [(first, last.priority), (last, first.priority)] {
            w.line.remove(&queued_step);
            w.line.insert(QueuedStep {
                priority,
                ..queued_step
            });
            if let Some(s) = state.steps.get_mut(&queued_step.step) {
                s.priority = priority.0;
            }
        }
    }
    changed
}

fn double(state: &mut State, worker: WorkerId) {
    if let Some(w) = state.workers.get_mut(&worker) {
        w.charged_tokens *= 2;
    }
}

/// Puts another state in; commands were taken out before.
fn replace(core: &mut Core, state: State) {
    *core = Core::with_state(core.config().clone(), state);
}
