//! How fast engines are, as measured when they are registered.

mod scenario;

use scenario::Scenario;
use treadle_core::{Command, Event, Mode, ProgramEvent};
use treadle_model::{Span, WorkerId};

fn measured(worker: u32, prefill_tokens_per_s: u64) -> Event {
    Event::Program(ProgramEvent::WorkerSpeedRead {
        worker: WorkerId(worker),
        prefill_tokens_per_s,
        token_us: 20_000,
    })
}

fn speed(s: &Scenario, worker: u32) -> Option<u64> {
    let worker = &s.core.programs().workers[&WorkerId(worker)];
    worker.prefill_speed.tokens_per_s()
}

#[test]
fn a_measured_speed_holds_until_the_engine_is_lost() {
    let mut s = Scenario::with_workers(&[1_000, 1_000, 1_000]);
    s.handle(measured(0, 15_000)).handle(measured(1, 900_000));
    assert_eq!(speed(&s, 0), Some(15_000));
    assert_eq!(s.core.programs().prefill_tokens_per_s, 15_000);
    s.handle(measured(2, 0)).handle(measured(7, 1));
    assert_eq!(speed(&s, 2), None, "that is no speed");
    let token = |s: &Scenario| s.core.programs().workers[&WorkerId(0)].pace.time();
    assert_eq!(token(&s).map(|time| time.alone), Some(Span(20_000)));
    s.lose(0);
    assert_eq!((speed(&s, 0), token(&s)), (None, None));
}

/// What the last question says that computing the first program's context takes.
fn prefill(s: &Scenario) -> Option<Span> {
    let of_question = |command: &Command| match command {
        Command::AskPolicy { question, .. } => question.programs.costs.prefill.first().copied(),
        _ => None,
    };
    s.log.iter().rev().find_map(of_question)
}

#[test]
fn rollouts_go_by_what_is_measured_unless_it_is_set() {
    for (set, expected) in [(0, 500), (100, 5_000)] {
        let mut s = Scenario::with_mode(Mode::Rollout, &[100_000]);
        s.reconfigure(|config| config.rollout.prefill_tokens_per_s = set);
        s.handle(measured(0, 1_000));
        s.arrive("a", 1, 490).wait_s(1).finish(1, 490, 10);
        s.arrive("a", 2, 600);
        assert_eq!(prefill(&s), Some(Span::from_millis(expected)));
    }
}
