//! Additions to the rows of steps beyond the core's state: predictions of their programs after
//! them.

use super::{Expected, projection};
use std::collections::HashMap;
use treadle_core::programs::ProgramEvent;
use treadle_core::{Core, Event};
use treadle_model::{ProgramId, TOKENS_MAX, Timestamp};
use treadle_store::{Batch, StepRow};

/// The last step of each live program to be predicted.
#[derive(Default)]
pub(super) struct StepAnnotations {
    last: HashMap<ProgramId, StepRow>,
}

impl StepAnnotations {
    /// Adds the rows of steps that an event ends. If a step is finished and `predicts`, its row is
    /// kept for the prediction.
    pub(super) fn step_ends(
        &mut self,
        core: &Core,
        event: &Event,
        now: Timestamp,
        predicts: bool,
        rows: &mut Batch,
    ) {
        let ended = projection::step_rows(core, event, now);
        let Event::Program(ProgramEvent::StepFinished { step, .. }) = event else {
            return rows.steps.extend(ended);
        };
        let state = core.programs();
        let program = state.steps.get(step).map(|step| step.program);
        if let (Some(id), Some(row)) = (program.filter(|_| predicts), ended.first()) {
            self.last.insert(id, row.clone());
        }
        rows.steps.extend(ended);
    }

    /// The row of a step with the prediction after it; `None` if another step has ended since.
    pub(super) fn predicted(&mut self, expected: &Expected) -> Option<StepRow> {
        let row = self.last.get(&expected.program)?;
        if expected.after.map(|step| step.0) != Some(row.step) {
            return None;
        }
        let row = self.last.remove(&expected.program)?;
        let tokens = |tokens: f64| Some((tokens.round() as u64).min(TOKENS_MAX));
        Some(StepRow {
            predicted_tokens: tokens(expected.forecast.remaining_tokens),
            predicted_tokens_p90: tokens(expected.forecast.remaining_tokens_p90),
            ..row
        })
    }

    /// Drops a program that is over.
    pub(super) fn forget(&mut self, program: ProgramId) {
        self.last.remove(&program);
    }
}

#[cfg(test)]
mod tests {
    use crate::scheduler::{Expected, Input, Observation, Options, Output, Scheduler};
    use treadle_core::memory::Capacity;
    use treadle_core::programs::{ProgramEvent, StepArrival, StepFailure, StepTokens};
    use treadle_core::{Core, CoreConfig, DaemonEvent, Event};
    use treadle_model::{EngineKind, FinishReason, GatewayId, StepId, Timestamp, WorkerId};
    use treadle_policy::evaluator::{EvaluatorLimits, Forecast, PolicyEvaluator};

    struct Story(Scheduler<PolicyEvaluator>);

    impl Story {
        fn new(predicts: bool) -> Self {
            let options = Options {
                core: Core::new(CoreConfig::default()),
                seq: 0,
                snapshot_seq: 0,
                journals: true,
                snapshot_events: 1_000,
                moves_caches: false,
                started: std::time::Instant::now(),
            };
            let policies = PolicyEvaluator::new(EvaluatorLimits::default());
            let mut scheduler = Scheduler::new(options, policies, ());
            scheduler.set_predicts(predicts);
            Self(scheduler)
        }

        fn at(&mut self, s: u64, event: ProgramEvent) {
            let at = Timestamp(s * 1_000_000);
            self.0.handle(at, Input::Event(Event::Program(event)));
        }

        fn arrive(&mut self, s: u64, step: u64) {
            self.at(
                s,
                ProgramEvent::StepArrived(StepArrival {
                    step: StepId(step),
                    program: "p".into(),
                    job: "j".into(),
                    prompt_tokens: 900,
                    exact: true,
                    prompt_bytes: 3_600,
                    text: None,
                    output_tokens_max: None,
                    prefix: Vec::new(),
                    one_shot: false,
                    inferred: false,
                    parent: None,
                    group: None,
                    model: None,
                }),
            );
        }

        /// Lets a step of a program arrive and end; returns the observation at its end.
        fn step(&mut self, s: u64, step: u64, weights: &str) -> Option<Observation> {
            self.arrive(s, step);
            while self.0.poll_output().is_some() {}
            let tokens = StepTokens {
                prompt: 900,
                output: 40,
                cached: None,
            };
            self.at(
                s + 1,
                ProgramEvent::StepFinished {
                    step: StepId(step),
                    tokens,
                    finish: FinishReason::Stop,
                    weights: Some(weights.into()),
                },
            );
            let mut outputs = std::iter::from_fn(|| self.0.poll_output());
            outputs.find_map(|output| match output {
                Output::Observed(observation) => Some(*observation),
                _ => None,
            })
        }

        fn expect(&mut self, seen: &Observation, remaining_tokens: f64) {
            let forecast = Forecast {
                remaining_tokens,
                remaining_tokens_p90: f64::MAX,
                remaining_tool_s: 0.0,
            };
            let expected = vec![Expected::of(seen, forecast)];
            self.0.handle(Timestamp(0), Input::Forecasts(expected));
        }
    }

    #[test]
    fn a_prediction_goes_to_the_row_of_the_step_that_it_is_after() {
        let mut story = Story::new(true);
        let first = story.step(0, 1, "v1").expect("it is observed");
        story.expect(&first, 79.6);
        let second = story.step(5, 2, "v1").expect("it is observed");
        story.step(9, 3, "v2");
        // It comes too late: another step has ended.
        story.expect(&second, 40.0);
        let rows = story.0.take_records().rows;
        let told = |row: &treadle_store::StepRow| {
            let total = row.output_tokens_total.unwrap_or(0);
            (row.step, total, row.predicted_tokens)
        };
        let steps: Vec<_> = rows.steps.iter().map(told).collect();
        let expected = [
            (1, 40, None),
            (1, 40, Some(80)),
            (2, 80, None),
            (3, 120, None),
        ];
        assert_eq!(steps, expected);
        assert_eq!(
            rows.steps[1].predicted_tokens_p90,
            Some(treadle_model::TOKENS_MAX)
        );
        let program = rows.programs.last().expect("it changed");
        assert_eq!(program.output_tokens, Some(120));
    }

    #[test]
    fn a_step_that_waited_in_vain_is_on_record_with_why() {
        let mut story = Story::new(false);
        story.step(0, 1, "v1");
        story.arrive(5, 2);
        story.0.take_records();
        let waited = CoreConfig::default().queue_wait_max;
        let at = Timestamp(5_000_000 + waited.micros());
        story
            .0
            .handle(at, Input::Event(Event::Daemon(DaemonEvent::TimerFired)));
        let rows = story.0.take_records().rows;
        let [row] = &*rows.steps else {
            panic!("{:?}", rows.steps)
        };
        assert_eq!(
            (row.step, &*row.program, &*row.outcome),
            (2, "p", "refused")
        );
        assert_eq!(
            (row.waited_us, row.finished_at_us),
            (waited.micros(), Some(at.0))
        );
        assert_eq!(
            (row.dispatched_at_us, row.output_tokens_total),
            (None, Some(40))
        );
        let cause = row.cause.as_deref().unwrap_or_default();
        assert!(
            cause.contains("waited") && cause.contains("0 workers"),
            "{cause}"
        );
        assert_eq!(rows.programs[0].phase, "acting");
    }

    #[test]
    fn a_program_whose_steps_end_with_their_connections_is_on_record_as_acting() {
        for lost in [
            Event::Daemon(DaemonEvent::DaemonRestarted),
            Event::Daemon(DaemonEvent::GatewayLost {
                gateway: GatewayId(3),
            }),
        ] {
            let mut story = Story::new(false);
            let gateway = match lost {
                Event::Daemon(DaemonEvent::GatewayLost { gateway }) => gateway,
                _ => GatewayId::LOCAL,
            };
            story.arrive(0, StepId::of(gateway, 1).0);
            let before = story.0.take_records().rows;
            assert_eq!(before.programs[0].phase, "reasoning");
            story.0.handle(Timestamp(1), Input::Event(lost));
            let rows = story.0.take_records().rows;
            assert_eq!(rows.steps[0].outcome, "interrupted");
            assert_eq!(rows.programs[0].phase, "acting");
        }
    }

    #[test]
    fn a_program_of_a_lost_worker_is_on_record_without_it() {
        let mut story = Story::new(false);
        let worker = WorkerId(0);
        story.at(
            0,
            ProgramEvent::WorkerAdded {
                worker,
                url: "http://e:1".into(),
                engine: EngineKind::Vllm,
                capacity: Capacity::default(),
                role: None,
            },
        );
        story.step(1, 1, "v1");
        let before = story.0.take_records().rows;
        let placed = |row: &treadle_store::ProgramRow| row.worker.clone();
        assert_eq!(
            before.programs.last().and_then(placed).as_deref(),
            Some("http://e:1")
        );
        let cause = "killed".into();
        story.at(5, ProgramEvent::WorkerLost { worker, cause });
        let rows = story.0.take_records().rows;
        assert_eq!(rows.programs.last().map(placed), Some(None));
    }

    #[test]
    fn a_request_that_an_engine_refuses_is_on_record_as_refused() {
        let mut story = Story::new(false);
        story.arrive(0, 1);
        let failure = StepFailure {
            cause: "the engine refused the request with 400 Bad Request".into(),
            retryable: false,
            rejected: true,
            busy: None,
        };
        let step = StepId(1);
        story.at(1, ProgramEvent::StepFailed { step, failure });
        let rows = story.0.take_records().rows;
        assert_eq!(rows.steps[0].outcome, "refused");
        assert!(rows.programs.last().is_some_and(|row| row.ended.is_some()));
    }

    #[test]
    fn a_reward_is_in_the_row_of_its_program_or_beside_it() {
        let mut story = Story::new(false);
        let reward = |reward_millionths| ProgramEvent::ProgramRewarded {
            program: "p".into(),
            reward_millionths,
        };
        story.step(0, 1, "v1");
        story.at(3, reward(500_000));
        let rows = story.0.take_records().rows;
        assert_eq!(rows.programs[0].reward_millionths, Some(500_000));
        assert!(rows.rewards.is_empty());
        let released = ProgramEvent::ProgramReleased {
            program: "p".into(),
            aborted: false,
        };
        story.at(4, released);
        story.at(5, reward(-2));
        let rows = story.0.take_records().rows;
        assert_eq!(rows.programs[0].reward_millionths, Some(500_000));
        assert_eq!(rows.rewards[0].program, "p");
        assert_eq!(rows.rewards[0].reward_millionths, -2);
        let event = rows.events.last().expect("it is journaled");
        assert_eq!(event.kind, "program_rewarded");
        assert_eq!(
            event.program.as_deref(),
            Some("p"),
            "it is found by its name"
        );
    }
}
