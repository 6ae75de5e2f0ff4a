//! Engines that answer and take no steps for now: paused, asleep or busy ones.

use crate::scenario::Scenario;
use treadle_core::programs::{ProgramCommand, ProgramEvent, Refusal, StepFailure};
use treadle_core::programs::{Rest, Worker};
use treadle_core::{Command, Event, Mode};
use treadle_model::{Span, StepId, WorkerId};

const MODES: [Mode; 3] = [Mode::ProgramAware, Mode::Sticky, Mode::LeastLoad];

fn worker(s: &Scenario, id: u32) -> &Worker {
    &s.core.programs().workers[&WorkerId(id)]
}

fn rest(s: &mut Scenario, id: u32, rest: Option<Rest>) {
    let worker = WorkerId(id);
    s.handle(Event::Program(ProgramEvent::WorkerRestRead {
        worker,
        rest,
    }));
}

/// The step's engine turns it away, and is busy for `seconds`.
fn turn_away(s: &mut Scenario, step: u64, seconds: u64) {
    let failure = StepFailure {
        cause: "the engine answered 503: the queue is full".into(),
        retryable: true,
        rejected: false,
        busy: Some(Span::from_secs(seconds)),
    };
    let step = StepId(step);
    s.handle(Event::Program(ProgramEvent::StepFailed { step, failure }));
}

fn refused(s: &Scenario) -> Vec<u64> {
    let refused = |c: &Command| match c {
        Command::Program(ProgramCommand::RefuseStep {
            step,
            refusal: Refusal::EngineFailed { .. },
            ..
        }) => Some(step.0),
        _ => None,
    };
    s.log.iter().filter_map(refused).collect()
}

#[test]
fn a_paused_worker_gets_no_steps_and_its_programs_go_elsewhere() {
    for mode in MODES {
        let mut s = Scenario::with_mode(mode, &[1_000, 1_000]);
        s.arrive("a", 1, 100).finish(1, 100, 10);
        assert_eq!(s.dispatched(), [(1, 0)], "{mode:?}");
        rest(&mut s, 0, Some(Rest::Paused));
        assert_eq!(worker(&s, 0).state_name(), "paused");
        s.arrive("a", 2, 120).arrive("b", 3, 100);
        assert_eq!(s.dispatched()[1..], [(2, 1), (3, 1)], "{mode:?}");
        rest(&mut s, 0, None);
        assert_eq!(worker(&s, 0).state_name(), "active");
        s.arrive("c", 4, 100);
        assert_eq!(s.dispatched()[3..], [(4, 0)], "{mode:?}");
    }
}

#[test]
fn without_another_worker_steps_wait_until_the_pause_is_over() {
    for mode in MODES {
        let mut s = Scenario::with_mode(mode, &[1_000]);
        s.arrive("a", 1, 100).arrive("b", 2, 100).finish(2, 100, 10);
        rest(&mut s, 0, Some(Rest::Paused));
        rest(&mut s, 0, Some(Rest::Paused));
        s.arrive("b", 3, 120).arrive("c", 4, 100);
        assert_eq!(s.dispatched().len(), 2, "{mode:?}: none comes");
        let is_cut = |c: &Command| matches!(c, Command::Program(ProgramCommand::AbortStep { .. }));
        assert!(!s.log.iter().any(is_cut), "what runs there goes on");
        s.finish(1, 100, 10);
        rest(&mut s, 0, None);
        let mut sent = s.dispatched()[2..].to_vec();
        sent.sort_unstable();
        assert_eq!(sent, [(3, 0), (4, 0)], "{mode:?}");
    }
}

#[test]
fn another_worker_takes_what_a_busy_one_turns_away() {
    for mode in MODES {
        let mut s = Scenario::with_mode(mode, &[1_000, 1_000, 1_000]);
        s.reconfigure(|config| config.attempts_max = 1);
        s.arrive("a", 1, 100);
        turn_away(&mut s, 1, 7);
        turn_away(&mut s, 1, 7);
        assert_eq!(s.dispatched(), [(1, 0), (1, 1), (1, 2)], "{mode:?}");
        assert!(worker(&s, 0).is_healthy());
        s.arrive("b", 2, 100);
        assert_eq!(
            s.dispatched()[3..],
            [(2, 2)],
            "{mode:?}: the others are busy"
        );
        turn_away(&mut s, 2, 7);
        assert_eq!(refused(&s), [2], "{mode:?}: all are");
        s.now = s.now + Span::from_secs(8);
        s.arrive("c", 3, 100);
        assert_ne!(s.dispatched()[4].1, 2, "{mode:?}: the interval is over");
    }
}

#[test]
fn without_another_worker_a_busy_ones_answer_is_the_steps() {
    let mut s = Scenario::with_workers(&[1_000, 50]);
    s.arrive("a", 1, 100);
    turn_away(&mut s, 1, 7);
    assert_eq!((s.dispatched(), refused(&s)), (vec![(1, 0)], vec![1]));
    // A program with a running step there stays.
    let mut s = Scenario::with_workers(&[1_000, 1_000]);
    s.arrive("a", 1, 100).arrive("a", 2, 100);
    turn_away(&mut s, 2, 7);
    assert_eq!(refused(&s), [2]);
    s.finish(1, 100, 10);
}
