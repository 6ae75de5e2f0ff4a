//! Rollouts in which the test answers the questions.

use super::Scenario;
use treadle_core::programs::{Attribution, PolicyAnswer, ProgramEvent, Purpose};
use treadle_core::{DaemonEvent, Event};
use treadle_model::{PolicyRef, ProgramId, StepId, WorkerId};

pub(crate) fn rollout() -> Scenario {
    Scenario::ranked(&[100_000, 100_000])
}

/// Answers an open question.
pub(crate) fn answer(
    scenario: &mut Scenario,
    is_it: impl Fn(Purpose) -> bool,
    rows: &[(u64, f64, Option<u32>)],
) {
    let mut asks = scenario.core.programs().asks.open().iter();
    let ask = *asks.find(|(_, a)| is_it(a.purpose)).expect("it is asked").0;
    let answer = PolicyAnswer::Order {
        programs: rows.iter().map(|row| ProgramId(row.0)).collect(),
        scores: rows.iter().map(|row| row.1).collect(),
        workers: rows.iter().map(|row| row.2.map(WorkerId)).collect(),
        remaining_tokens: Vec::new(),
    };
    scenario.handle(Event::Program(ProgramEvent::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        answer,
        attribution: Attribution::default(),
    }));
}

/// Whether a question is the one about this step.
pub(crate) fn route(step: u64) -> impl Fn(Purpose) -> bool {
    move |purpose| matches!(purpose, Purpose::Route { step: of } if of == StepId(step))
}

/// One step at an engine at once; program 0 has begun at worker 0, and program 1 runs there. Only
/// the test answers.
pub(crate) fn queued_step() -> Scenario {
    let mut scenario = rollout();
    scenario.mute_policy = true;
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 1);
    for program in 0..2 {
        scenario.arrive(&format!("p{program}"), program, 100);
        // By the time that the rest of the second is over, the first program is asked about.
        scenario.handle(Event::Daemon(DaemonEvent::TimerFired));
        let at = scenario.core.next_deadline().expect("it is gathered");
        scenario.now = scenario.now.max(at);
        scenario.handle(Event::Daemon(DaemonEvent::TimerFired));
        let assign = |purpose| purpose == Purpose::Restore;
        answer(&mut scenario, assign, &[(program, 1.0, Some(0))]);
        if program == 0 {
            scenario.finish(0, 100, 10);
        }
    }
    assert_eq!(scenario.dispatched(), [(0, 0), (1, 0)]);
    scenario
}
