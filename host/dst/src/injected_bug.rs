//! Injected bugs: deliberate faults of the code under test, to check that the rules detect them.

mod actions;
mod tampering;

use tampering::{forget_state, miscount_waiting, reverse_run_queues, tamper_with_ledger};
use treadle_core::programs::{Because, Decision, DecisionKind, Program, Worker, WorkerState};
use treadle_core::programs::{ProgramCommand, ProgramEvent};
use treadle_core::{Command, Core, CoreConfig, Event, State, programs};
use treadle_model::{PolicyRef, Span, StepId, WorkerId};

macro_rules! injected_bugs {
    ($($(#[$doc:meta])* $kind:ident => $name:literal),+ $(,)?) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum InjectedBug {
            $($(#[$doc])* $kind),+
        }

        impl InjectedBug {
            /// All injected bugs.
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
    /// Now and then a running step is preempted though none waits.
    PreemptForNobody => "preempt-for-nobody",
    /// Recovery replays the last event twice.
    RecoveryRepeatsEvent => "recovery-repeats-event",
    /// A snapshot lacks its last byte.
    SnapshotCut => "snapshot-cut",
    /// What follows the last committed event is acknowledged with it.
    AckOneEarly => "ack-one-early",
    /// Steps are refused twice.
    RefuseTwice => "refuse-twice",
    /// Steps are sent to a lost worker, if there is one.
    DispatchToLost => "dispatch-to-lost",
    /// Now and then a step is sent to another worker than its program's.
    DispatchElsewhere => "dispatch-elsewhere",
    /// A program with a running step is placed on a second worker too.
    SplitProgram => "split-program",
    /// Now and then a step that waits is aborted as if it ran.
    AbortWaiting => "abort-waiting",
    /// A worker is charged for one token too many.
    OffByOneToken => "off-by-one-token",
    /// The low watermark is taken to be a fiftieth higher.
    OvercommitSlightly => "overcommit-slightly",
    /// Programs are paused only when a worker is a tenth above its high watermark.
    PauseLate => "pause-late",
    /// The low watermark is taken to be half as high: programs wait though they fit.
    LeaveRoom => "leave-room",
    /// Programs keep their placement for a thousand times their quantum while others starve.
    QuantumTooLong => "quantum-too-long",
    /// One program more than allowed may be live.
    OneProgramMore => "one-program-more",
    /// Steps are tried once more than allowed.
    OneAttemptMore => "one-attempt-more",
    /// Steps get slots that others have.
    SlotTwice => "slot-twice",
    /// Workers are taken to hold contexts a quarter longer than they do.
    ContextTooLong => "context-too-long",
    /// Now and then a question is not asked.
    ForgetQuestion => "forget-question",
    /// Programs that are over are not forgotten.
    KeepProgram => "keep-program",
    /// A worker is known that was never registered.
    GhostWorker => "ghost-worker",
    /// Waiting steps are miscounted.
    MiscountWaiting => "miscount-waiting",
    /// Now and then a worker is taken to need nothing free.
    FillWhole => "fill-whole",
    /// Now and then the prompts that a worker has yet to compute are forgotten.
    ForgetPrompts => "forget-prompts",
    /// Cordoned workers are given programs.
    ForgetCordon => "forget-cordon",
    /// Draining workers keep their programs.
    ForgetDrain => "forget-drain",
    /// Actions are begun before their starts are on record.
    StartBeforeCommit => "start-before-commit",
    /// Now and then an action is started twice.
    RunActionTwice => "run-action-twice",
    /// Now and then an action keeps a unit when it ends.
    KeepUnits => "keep-units",
    /// Another action starts in place of the first that waits.
    OvertakeHead => "overtake-head",
    /// Now and then the end of an action is not answered.
    ForgetActionEnd => "forget-action-end",
    /// Actions that wait are not withdrawn with their programs.
    ForgetProgramsActions => "forget-programs-actions",
    /// Programs are not told that their actions are over.
    KeepProgramsAction => "keep-programs-action",
    /// Times of tools are learnt with their waits.
    LearnWaits => "learn-waits",
    /// Actions may wait for ever behind later ones.
    StarveActions => "starve-actions",
    /// Actions that never began count as calls of their tools.
    LearnWithdrawn => "learn-withdrawn",
}

/// Number of events between two interferences.
const TAMPER_EVENTS: u64 = 50;

impl InjectedBug {
    /// The injected bug with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The settings that the core really gets.
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
            Some(Self::OvercommitSlightly) => {
                config.low_watermark_ppm += config.low_watermark_ppm / 50;
            }
            Some(Self::PauseLate) => config.high_watermark_ppm += config.high_watermark_ppm / 10,
            Some(Self::LeaveRoom) => config.low_watermark_ppm /= 2,
            Some(Self::QuantumTooLong) => config.quantum_ppm *= 1_000,
            Some(Self::OneProgramMore) => config.programs_max += 1,
            Some(Self::LearnWaits) => config.actions.joint_retention = false,
            Some(Self::StarveActions) => config.actions.starvation = Span::from_secs(1_000_000),
            Some(Self::OneAttemptMore) => config.attempts_max += 1,
            _ => {}
        }
        config
    }

    /// Changes the core's output.
    pub(crate) fn tamper(self, core: &mut Core, did: &mut Did, event: &Event, events: u64) {
        match self {
            Self::RunActionTwice
            | Self::KeepUnits
            | Self::OvertakeHead
            | Self::ForgetActionEnd
            | Self::ForgetProgramsActions
            | Self::KeepProgramsAction
            | Self::LearnWithdrawn => self.tamper_with_actions(core, did, event, events),
            Self::DispatchTwice
            | Self::DispatchToLost
            | Self::DispatchElsewhere
            | Self::SplitProgram
            | Self::SlotTwice => self.tamper_with_dispatch(core.programs(), did, events),
            Self::ForgetWaitingStep
            | Self::DoubleCharge
            | Self::OffByOneToken
            | Self::LineReversed
            | Self::ContextTooLong
            | Self::GhostWorker
            | Self::FillWhole
            | Self::ForgetPrompts
            | Self::ForgetCordon
            | Self::ForgetDrain
            | Self::MiscountWaiting => {
                let mut state = core.state().into_owned();
                if self.tamper_with_state(state.programs.to_mut(), event, events) {
                    replace(core, state);
                }
            }
            _ => self.tamper_with_commands(core.programs(), &mut did.commands, events),
        }
    }

    fn tamper_with_commands(
        self,
        state: &programs::State,
        commands: &mut Vec<Command>,
        events: u64,
    ) {
        let mut drop = |is: fn(&Command) -> bool| commands.retain(|command| !is(command));
        match self {
            Self::ForgetDrop if events.is_multiple_of(5) => {
                drop(|c| matches!(c, Command::Program(ProgramCommand::DropCopy { .. })));
            }
            Self::ForgetCancel => {
                drop(|c| matches!(c, Command::Program(ProgramCommand::CancelTransfer { .. })));
            }
            Self::ForgetLoad => {
                drop(|c| matches!(c, Command::Program(ProgramCommand::LoadProgram { .. })));
            }
            Self::ForgetQuestion if events.is_multiple_of(5) => {
                drop(|c| matches!(c, Command::Program(ProgramCommand::AskPolicy { .. })));
            }
            Self::KeepProgram => {
                drop(|c| matches!(c, Command::Program(ProgramCommand::ForgetProgram { .. })));
            }
            Self::MoveTwice => move_twice(state, commands),
            Self::RefuseTwice => {
                let refuses =
                    |c: &&Command| matches!(c, Command::Program(ProgramCommand::RefuseStep { .. }));
                let again = commands.iter().find(refuses).cloned();
                commands.extend(again);
            }
            Self::PreemptForNobody if events.is_multiple_of(TAMPER_EVENTS) => {
                let mut steps = state.steps.iter();
                let running = steps.find(|(_, s)| s.state.worker().is_some());
                let running = running
                    .map(|(step, _)| Command::Program(ProgramCommand::PreemptStep { step: *step }));
                commands.extend(running);
            }
            Self::AbortWaiting if events.is_multiple_of(TAMPER_EVENTS) => {
                commands.extend(first_waiting(state).map(|step| {
                    Command::Program(ProgramCommand::AbortStep {
                        step,
                        cause: "injected".into(),
                    })
                }));
            }
            _ => {}
        }
    }

    fn tamper_with_dispatch(self, state: &programs::State, did: &mut Did, events: u64) {
        let dispatch =
            |c: &&mut Command| matches!(c, Command::Program(ProgramCommand::DispatchStep { .. }));
        let Some(sent) = did.commands.iter_mut().find(dispatch) else {
            return;
        };
        let again = sent.clone();
        let Command::Program(ProgramCommand::DispatchStep {
            step, worker, slot, ..
        }) = sent
        else {
            return;
        };
        let other = |healthy: bool| {
            let mut others = state.workers.iter().filter(|(id, _)| **id != *worker);
            others.find(|(_, w)| w.is_healthy() == healthy)
        };
        match self {
            Self::DispatchTwice if events.is_multiple_of(7) => did.commands.push(again),
            Self::DispatchToLost => *worker = other(false).map_or(*worker, |(id, _)| *id),
            Self::DispatchElsewhere if events.is_multiple_of(7) => {
                *worker = other(true).map_or(*worker, |(id, _)| *id);
            }
            Self::SplitProgram => {
                let program = state.steps.get(step).map(|s| s.program);
                let program = program.and_then(|id| state.live.get(&id));
                let split = program.filter(|p| p.running.len() > 1).zip(other(true));
                if let Some((p, (elsewhere, _))) = split {
                    *worker = *elsewhere;
                    did.decisions.push(placed(state, p, *elsewhere));
                }
            }
            Self::SlotTwice => {
                let program = state.steps.get(step).map(|s| s.program);
                let mut others = state
                    .live
                    .values()
                    .filter(|p| Some(p.id) != program && !p.running.is_empty());
                let taken =
                    others.find_map(|p| p.placement.filter(|place| place.worker == *worker)?.slot);
                *slot = taken.or(*slot);
            }
            _ => {}
        }
    }

    /// Changes the core's state; true if anything changed.
    fn tamper_with_state(self, state: &mut programs::State, event: &Event, events: u64) -> bool {
        let now_and_then = events.is_multiple_of(TAMPER_EVENTS);
        match self {
            Self::ForgetWaitingStep if now_and_then => {
                let waiting = first_waiting(state);
                waiting.is_some_and(|step| state.steps.remove(&step).is_some())
            }
            Self::DoubleCharge if now_and_then => {
                let charged = |w: &Worker| w.ledger.charged_tokens() > 0;
                tamper_with_ledger(state, charged, |ledger| {
                    let tokens = &mut ledger["charged_tokens"];
                    *tokens = (tokens.as_u64().unwrap_or(0) * 2).into();
                })
            }
            Self::OffByOneToken if now_and_then => {
                let charged = |w: &Worker| w.ledger.charged_tokens() > 0;
                tamper_with_ledger(state, charged, |ledger| {
                    let tokens = &mut ledger["charged_tokens"];
                    *tokens = (tokens.as_u64().unwrap_or(0) + 1).into();
                })
            }
            Self::LineReversed => reverse_run_queues(state),
            Self::ContextTooLong => match event {
                Event::Program(
                    ProgramEvent::WorkerAdded { worker, .. }
                    | ProgramEvent::WorkerCapacityRead { worker, .. },
                ) => {
                    let known = state.workers.get_mut(worker);
                    let most = known.and_then(|w| w.capacity.context_tokens_max.as_mut());
                    most.map(|most| *most += *most / 4).is_some()
                }
                _ => false,
            },
            Self::GhostWorker if now_and_then => {
                let ghost = WorkerId(u32::MAX);
                let first = state.workers.values().next().cloned();
                first.is_some_and(|first| state.workers.insert(ghost, first).is_none())
            }
            Self::FillWhole if now_and_then => {
                let learnt = |w: &Worker| w.ledger.engine().headroom_ppm().is_some();
                tamper_with_ledger(state, learnt, |ledger| {
                    ledger["engine"]["headroom_ppm"] = 0.into();
                })
            }
            Self::ForgetPrompts if now_and_then => {
                let busy = |w: &Worker| w.ledger.engine().has_prompts();
                tamper_with_ledger(state, busy, |ledger| {
                    if let Some(engine) = ledger["engine"].as_object_mut() {
                        engine.remove("backlog");
                    }
                })
            }
            Self::ForgetCordon => forget_state(state, WorkerState::Cordoned, WorkerState::Active),
            Self::ForgetDrain => forget_state(state, WorkerState::Draining, WorkerState::Cordoned),
            Self::MiscountWaiting if now_and_then => {
                miscount_waiting(state);
                true
            }
            _ => false,
        }
    }
}

/// The core's output for an event.
pub(crate) struct Did {
    /// Its commands.
    pub(crate) commands: Vec<Command>,
    /// Its decisions.
    pub(crate) decisions: Vec<Decision>,
}

fn first_waiting(state: &programs::State) -> Option<StepId> {
    let mut steps = state.steps.iter();
    let waiting = steps.find(|(_, s)| s.state.worker().is_none());
    waiting.map(|(step, _)| *step)
}

/// A decision to place a program.
fn placed(state: &programs::State, p: &Program, worker: WorkerId) -> Decision {
    Decision {
        at: state.now,
        kind: DecisionKind::Place,
        program: p.id,
        key: p.key.clone(),
        worker,
        policy: PolicyRef("injected".into()),
        placed_by: None,
        because: Because::PlainRouting,
        need_tokens: 0,
        used_tokens: 0,
        capacity_tokens: None,
        waited: Span(0),
        score: None,
        alternatives: Vec::new(),
    }
}

/// Another program goes where one goes.
fn move_twice(state: &programs::State, commands: &mut Vec<Command>) {
    let moves = |c: &&Command| matches!(c, Command::Program(ProgramCommand::MigrateProgram { .. }));
    let Some(Command::Program(ProgramCommand::MigrateProgram {
        program,
        from,
        to,
        from_slot,
        to_slot,
        ..
    })) = commands.iter().find(moves).cloned()
    else {
        return;
    };
    let idle = state.workers.get(&from).into_iter().flat_map(|w| &w.idle);
    let other = idle
        .filter(|other| **other != program)
        .find_map(|id| state.live.get(id));
    commands.extend(other.map(|other| {
        Command::Program(ProgramCommand::MigrateProgram {
            program: other.id,
            from,
            to,
            from_slot,
            to_slot,
            tokens: other.context_tokens,
        })
    }));
}

/// Replaces the state; commands were removed before.
fn replace(core: &mut Core, state: State<'static>) {
    *core = Core::with_state(core.config().clone(), state);
}
