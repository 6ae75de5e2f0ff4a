//! Injected bugs of weight updates: what the core is told, what it emits, or what it keeps is
//! changed, to check that the rules detect it.

use super::engines::Work;
use super::model::Version;
use crate::bug::injected_bugs;
use treadle_core::programs::ProgramEvent;
use treadle_core::weights::{Answer, Call, Checksum, Phase, WeightsCommand};
use treadle_core::{CapturedVersion, Command, Event, State};
use treadle_model::Span;

injected_bugs! { WeightsBug {
    /// Every engine seems to prove what is wanted, so that it resumes before it was verified.
    BelieveAll => "believe-all",
    /// A load that failed counts as done.
    BelieveLost => "believe-lost",
    /// A load that failed counts as one that changed nothing.
    FailedIsRefused => "failed-is-refused",
    /// Checksums are not looked at.
    SkipChecksums => "skip-checksums",
    /// Caches are not cleared.
    KeepCaches => "keep-caches",
    /// Fences do not reach the machine of programs.
    SkipFences => "skip-fences",
    /// The versions that answers name are not noticed.
    IgnoreNames => "ignore-names",
    /// Engines that are lost and answer again are not noticed.
    IgnoreLosses => "ignore-losses",
    /// A fenced engine does not say why.
    DropReason => "drop-reason",
    /// A step that was cut counts as ended at once.
    ForgetCut => "forget-cut",
    /// An engine is loaded, and then paused.
    LoadBeforePause => "load-before-pause",
    /// A daemon that starts takes torn engines for whole ones.
    RestartForgetsTorn => "restart-forgets-torn",
    /// Recovery leaves an event out.
    ReplayDropsEvent => "replay-drops-event",
    /// The core is not woken for what is due to weights.
    NoTimer => "no-timer",
    /// Now and then a call is not made.
    LoseCall => "lose-call",
    /// An older version is published over a newer one.
    AcceptOlder => "accept-older",
    /// Tokens count as sampled by the version in service, whatever their engine has.
    IgnoreHolding => "ignore-holding",
    /// An engine that failed once is never tried again.
    RestForEver => "rest-for-ever",
} }

impl WeightsBug {
    /// The event that the core gets instead, if any.
    pub(super) fn event(self, mut event: Event) -> Option<Event> {
        match (self, &mut event) {
            (
                Self::IgnoreLosses,
                Event::Program(
                    ProgramEvent::WorkerLost { .. } | ProgramEvent::WorkerRecovered { .. },
                ),
            ) => return None,
            (Self::IgnoreNames, Event::Program(ProgramEvent::StepFinished { weights, .. })) => {
                *weights = None;
            }
            _ => {}
        }
        Some(event)
    }

    /// Changes an answer.
    pub(super) fn answer(self, work: &Work, answer: &mut Answer) {
        let loads = match work {
            Work::Own(call, _) => *call == Call::Apply,
            Work::Trainer(..) | Work::Abandon => true,
        };
        match (self, &mut *answer) {
            (Self::BelieveLost, Answer::Failed { .. }) if loads => *answer = Answer::Done,
            (Self::FailedIsRefused, Answer::Failed { cause }) if loads => {
                let cause = cause.clone();
                *answer = Answer::Refused { cause };
            }
            (Self::BelieveAll, Answer::Reports { name, checksum, .. }) => {
                let Work::Own(_, weights) = work else { return };
                *name = Some(weights.name.clone());
                *checksum = checksum.take().map(|sum| Checksum {
                    value: format!("sum of {}", Version::of(weights)).into(),
                    ..sum
                });
            }
            (
                Self::SkipChecksums,
                Answer::Reports {
                    checksum, whole, ..
                },
            ) => (*checksum, *whole) = (None, true),
            _ => {}
        }
    }

    pub(super) fn keeps_caches(self) -> bool {
        self == Self::KeepCaches
    }

    /// Changes commands.
    pub(super) fn commands(self, commands: &mut Vec<Command>) {
        commands.retain_mut(|command| {
            let Command::Weights(WeightsCommand::Call { number, call, .. }) = command else {
                return true;
            };
            if self == Self::LoadBeforePause {
                *call = match *call {
                    Call::Pause => Call::Apply,
                    Call::Apply => Call::Pause,
                    other => other,
                };
            }
            self != Self::LoseCall || !number.is_multiple_of(7)
        });
    }

    /// Changes the state after an event; true if it did.
    pub(super) fn state(self, state: &mut State<'_>, restarted: bool) -> bool {
        match self {
            Self::SkipFences => {
                for worker in state.programs.to_mut().workers.values_mut() {
                    worker.fenced = false;
                }
            }
            Self::DropReason => {
                for holding in state.weights.to_mut().holdings.values_mut() {
                    holding.cause = None;
                }
            }
            Self::RestForEver => {
                for holding in state.weights.to_mut().holdings.values_mut() {
                    if holding.failures > 0 {
                        holding.rests_until = state.now + Span::from_secs(1_000_000);
                    }
                }
            }
            Self::RestartForgetsTorn if restarted => {
                for (worker, holding) in &mut state.weights.to_mut().holdings {
                    if matches!(holding.phase, Phase::Torn | Phase::Unknown) {
                        (holding.phase, holding.sound, holding.call) = (Phase::Held, true, None);
                    }
                    if holding.phase == Phase::Held
                        && let Some(worker) = state.programs.to_mut().workers.get_mut(worker)
                    {
                        worker.fenced = false;
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// What is read of an engine to tell which version sampled a step.
    pub(super) fn captured(self, mut read: CapturedVersion) -> CapturedVersion {
        if self == Self::IgnoreHolding {
            read.held.clear();
            read.named.clear();
            read.unknown = false;
        }
        read
    }
}
