//! Observations of programs for the predictors. No decision waits for a prediction: it is there
//! when the next one is due, or it is not.

use std::collections::BTreeSet;
use treadle_core::programs::Program;
use treadle_core::programs::ProgramEvent;
use treadle_core::{Core, Event};
use treadle_model::{Phase, ProgramId, StepId, Timestamp};
use treadle_policy::columns::{EXTRA_COLUMNS, extra_columns, group_of};
use treadle_policy::evaluator::Forecast;

/// The state of a program before its first step, at the end of a step, at the return of its tool,
/// or at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The program.
    pub program: ProgramId,
    /// Its client's name for it.
    pub key: Box<str>,
    /// Its job.
    pub job: Box<str>,
    /// A number shared by the programs of one group.
    pub group: u64,
    /// Context length.
    pub tokens: u64,
    /// Tokens generated so far.
    pub output_tokens: u64,
    /// Steps finished so far.
    pub steps: u32,
    /// Time in tools so far.
    pub tool_ms: u64,
    /// Other facts: its row of [`EXTRA_COLUMNS`].
    pub extra: [f32; EXTRA_COLUMNS.len()],
    /// When it was observed.
    pub moment: Moment,
    /// The step that has just ended.
    pub after: Option<StepId>,
}

/// The forecast for an observed program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The program.
    pub program: ProgramId,
    /// `after` of the observation.
    pub after: Option<StepId>,
    /// The forecast.
    pub forecast: Forecast,
}

impl Expected {
    /// The forecast for this observation.
    pub fn of(seen: &Observation, forecast: Forecast) -> Self {
        Self {
            program: seen.program,
            after: seen.after,
            forecast,
        }
    }
}

/// When a program is observed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// Before its first step, or when a step has ended and its tool runs.
    Acting,
    /// When that tool has returned: its result and duration are known.
    Returned,
    /// When it is over and ran to completion.
    Ended,
    /// When it is over but might have continued: it was aborted, or went idle.
    CutShort,
}

impl Moment {
    /// Whether the program is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::CutShort)
    }
}

impl Observation {
    pub(super) fn of(program: &Program, moment: Moment, now: Timestamp) -> Self {
        let acted = match moment {
            // Idle time after the last step is no tool call.
            Moment::Ended | Moment::CutShort => program.acted_total,
            Moment::Acting | Moment::Returned => program.acted(now),
        };
        Self {
            program: program.id,
            key: program.key.clone(),
            job: program.job.clone(),
            group: group_of(program),
            // A program without a finished step is described by its first prompt.
            tokens: program.context_tokens.max(program.demand_tokens),
            output_tokens: program.output_tokens_total,
            steps: program.steps_finished,
            tool_ms: acted.millis(),
            extra: extra_columns(program, moment == Moment::Returned),
            moment,
            after: None,
        }
    }

    /// A program that is over, in its last state.
    pub(super) fn last(program: &Program, now: Timestamp) -> Self {
        let moment = if program.has_ended() {
            Moment::Ended
        } else {
            Moment::CutShort
        };
        Self::of(program, moment, now)
    }
}

/// Programs whose last tool call has returned, as reported before their next step arrived.
#[derive(Default)]
pub(super) struct Returned(BTreeSet<ProgramId>);

impl Returned {
    /// The program that an event is about to give an observation of, and its moment.
    pub(super) fn moment(&mut self, core: &Core, event: &Event) -> Option<(ProgramId, Moment)> {
        let Event::Program(event) = event else {
            return None;
        };
        let acting = |key: &str| {
            let known = core.programs().program(key);
            known.filter(|p| p.phase == Phase::Acting && p.steps_finished > 0)
        };
        match event {
            ProgramEvent::StepFinished { step, .. } => {
                let step = core.programs().steps.get(step)?;
                Some((step.program, Moment::Acting))
            }
            ProgramEvent::StepArrived(arrival) => match core.programs().program(&arrival.program) {
                // If a policy ranks its steps, its placement is decided before the first one, so a
                // forecast should exist by then. The program gets the next id.
                None if core.ranks(&arrival.job) => {
                    Some((ProgramId(core.programs().next_program), Moment::Acting))
                }
                None => None,
                Some(_) => {
                    let program = acting(&arrival.program)?.id;
                    (!self.forget(program)).then_some((program, Moment::Returned))
                }
            },
            ProgramEvent::ActionStarted { program, .. } => {
                self.forget(acting(program)?.id);
                None
            }
            ProgramEvent::ActionFinished {
                program, action, ..
            } => {
                let program = acting(program)?;
                let is_last = program.actions.len() == 1 && program.actions.contains_key(action);
                (is_last && self.0.insert(program.id)).then_some((program.id, Moment::Returned))
            }
            _ => None,
        }
    }

    /// Removes a program; returns whether its tool had returned.
    pub(super) fn forget(&mut self, program: ProgramId) -> bool {
        self.0.remove(&program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Input, Options, Output, Scheduler};
    use treadle_core::memory::PrefixSegment;
    use treadle_core::programs::{StepArrival, StepTokens};
    use treadle_core::{CoreConfig, DaemonEvent};
    use treadle_model::{FinishReason, StepId};
    use treadle_policy::evaluator::{EvaluatorLimits, PolicyEvaluator};

    struct Story(Scheduler<PolicyEvaluator>);

    impl Story {
        fn new() -> Self {
            let options = Options {
                core: Core::new(CoreConfig::default()),
                seq: 0,
                snapshot_seq: 0,
                journals: false,
                snapshot_events: 1_000,
                moves_caches: false,
                started: std::time::Instant::now(),
            };
            let policies = PolicyEvaluator::new(EvaluatorLimits::default());
            let mut scheduler = Scheduler::new(options, policies, ());
            scheduler.set_predicts(true);
            Self(scheduler)
        }

        fn at(&mut self, ms: u64, event: ProgramEvent) -> Vec<Observation> {
            let at = Timestamp(ms * 1_000);
            self.0.handle(at, Input::Event(Event::Program(event)));
            let outputs = std::iter::from_fn(|| self.0.poll_output());
            let observed = outputs.filter_map(|output| match output {
                Output::Observed(observation) => Some(*observation),
                _ => None,
            });
            observed.collect()
        }
    }

    fn arrived(step: u64) -> ProgramEvent {
        ProgramEvent::StepArrived(StepArrival {
            step: StepId(step),
            program: "p".into(),
            job: "j".into(),
            prompt_tokens: 900,
            exact: true,
            prompt_bytes: 3_600,
            text: None,
            output_tokens_max: None,
            prefix: vec![PrefixSegment {
                hash: 5,
                tokens: 640,
            }],
            one_shot: false,
            inferred: false,
            parent: None,
            group: Some(91),
            model: None,
        })
    }

    fn finished(step: u64) -> ProgramEvent {
        let tokens = StepTokens {
            prompt: 900,
            output: 40,
            cached: None,
        };
        ProgramEvent::StepFinished {
            step: StepId(step),
            tokens,
            finish: FinishReason::Stop,
            weights: None,
        }
    }

    fn action(begins: bool, ok: bool) -> ProgramEvent {
        let (program, action) = ("p".into(), "a".into());
        if begins {
            let tool = "t".into();
            ProgramEvent::ActionStarted {
                program,
                action,
                tool,
            }
        } else {
            ProgramEvent::ActionFinished {
                program,
                action,
                ok,
            }
        }
    }

    #[test]
    fn a_program_is_asked_about_again_when_its_tool_returns() {
        let mut story = Story::new();
        assert!(story.at(0, arrived(1)).is_empty());
        let ended = story.at(10, finished(1)).remove(0);
        assert_eq!((ended.moment, ended.group), (Moment::Acting, 91));
        assert_eq!(
            (ended.tool_ms, ended.extra[2], ended.extra[4]),
            (0, -1.0, 0.0)
        );
        story.at(20, action(true, true));
        let returned = story.at(270, action(false, false)).remove(0);
        assert_eq!((returned.moment, returned.tool_ms), (Moment::Returned, 260));
        assert_eq!(returned.extra[2..5], [0.0, 1.0, 1.0]);
        assert!(story.at(280, arrived(2)).is_empty(), "once is enough");
        story.at(290, finished(2));
        // The return of this one is not reported.
        let returned = story.at(400, arrived(3)).remove(0);
        assert_eq!((returned.moment, returned.steps), (Moment::Returned, 2));
        assert_eq!(returned.tool_ms, 270 + 110);
    }

    #[test]
    fn only_what_its_client_ends_between_steps_has_ended() {
        let release = |aborted| ProgramEvent::ProgramReleased {
            program: "p".into(),
            aborted,
        };
        let cancelled = ProgramEvent::StepCancelled { step: StepId(2) };
        let stories = [
            (vec![release(false)], Moment::Ended),
            (vec![release(true)], Moment::CutShort),
            (
                vec![arrived(2), cancelled, release(false)],
                Moment::CutShort,
            ),
            (
                vec![arrived(2), release(false), finished(2)],
                Moment::CutShort,
            ),
            (vec![arrived(2), finished(2), release(false)], Moment::Ended),
        ];
        for (events, expected) in stories {
            let mut story = Story::new();
            story.at(0, arrived(1));
            story.at(10, finished(1));
            let told = events.iter().map(|event| story.at(20, event.clone()));
            let last = told.flatten().last().map(|observed| observed.moment);
            assert_eq!(last, Some(expected), "{events:?}");
        }
        let mut story = Story::new();
        story.at(0, arrived(1));
        story.at(10, finished(1));
        let hour = Timestamp(4_000_000_000);
        story
            .0
            .handle(hour, Input::Event(Event::Daemon(DaemonEvent::TimerFired)));
        let expired =
            std::iter::from_fn(|| story.0.poll_output()).find_map(|output| match output {
                Output::Observed(observed) => Some((observed.moment, observed.tool_ms)),
                _ => None,
            });
        assert_eq!(expired, Some((Moment::CutShort, 0)));
    }
}
