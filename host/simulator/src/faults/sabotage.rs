//! Sabotage: deliberate faults of the parts that must not have any, to see
//! that the checks find them.

use treadle_core::{Command, Core, CoreConfig, Event, State};
use treadle_model::{Span, WorkerId};

macro_rules! sabotages {
    ($($(#[$doc:meta])* $kind:ident => $name:literal),+ $(,)?) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Sabotage {
            $($(#[$doc])* $kind),+
        }

        impl Sabotage {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }
    };
}

sabotages! {
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
    /// Now and then a place is charged twice.
    DoubleCharge => "double-charge",
    /// Programs are admitted beyond the watermark.
    Overcommit => "overcommit",
    /// Nobody is ever deferred: the policy's order stands however long
    /// somebody waits.
    SkipQueueOrder => "skip-queue-order",
    /// Steps may wait for twice their bound.
    WaitTooLong => "wait-too-long",
    /// The publisher's cursor moves before its messages are confirmed.
    CursorBeforeConfirm => "cursor-before-confirm",
    /// The consumer counts what comes twice.
    ConsumerCountsTwice => "consumer-counts-twice",
    /// A transaction that was in doubt is taken to be committed.
    DoubtIsCommit => "doubt-is-commit",
}

/// A tampering core tampers once in so many events.
const TAMPER_EVENTS: u64 = 50;

impl Sabotage {
    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The settings that the core gets in truth.
    pub(crate) fn config(sabotage: Option<Self>, config: &CoreConfig) -> CoreConfig {
        let mut config = config.clone();
        match sabotage {
            Some(Self::Overcommit) => config.low_watermark_ppm *= 2,
            Some(Self::SkipQueueOrder) => config.deferral_max = Span::from_secs(1_000_000),
            Some(Self::WaitTooLong) => config.queue_wait_max.0 *= 2,
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
            _ => {}
        }
    }
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
