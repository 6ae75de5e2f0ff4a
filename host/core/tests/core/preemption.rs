//! Preempted steps count as running until their gateways report that they were interrupted.

use crate::scenario::Scenario;
use crate::scenario::rollouts::{answer, queued_step, rollout, route};
use treadle_core::programs::GivesWay;
use treadle_core::programs::{ProgramCommand, ProgramEvent, Purpose};
use treadle_core::{Command, DaemonEvent, Event};
use treadle_model::{GatewayId, ProgramId, StepId, WorkerId};

#[test]
fn beyond_an_engines_bound_the_most_urgent_goes_first_and_the_least_urgent_gives_way() {
    let mut scenario = rollout();
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 1);
    // Even programs are on worker 0; the later ones are the more urgent.
    for program in 0..6 {
        scenario
            .arrive(&format!("p{program}"), 6 * program, 100)
            .wait_s(1);
    }
    let preempted = |c: &Command| match c {
        Command::Program(ProgramCommand::PreemptStep { step }) => Some(step.0),
        _ => None,
    };
    let preempted: Vec<_> = scenario.log.iter().filter_map(preempted).collect();
    assert_eq!(preempted, [0, 6, 12, 18]);
    assert_eq!(scenario.core.programs().counters.preemptions, 4);
    scenario.log.clear();
    scenario
        .finish(24, 100, 10)
        .finish(12, 100, 10)
        .finish(0, 100, 10);
    assert_eq!(
        scenario.dispatched(),
        [(12, 0), (0, 0)],
        "the most urgent first"
    );
    let step = &scenario.core.programs().steps[&StepId(30)];
    assert_eq!(step.state.worker(), Some(WorkerId(1)));
}

#[test]
fn giving_way_is_not_counted_as_a_failure() {
    let mut scenario = queued_step();
    scenario.reconfigure(|config| config.attempts_max = 1);
    scenario.arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(scenario.core.programs().steps[&StepId(1)].attempts, 0);
    scenario.finish(10, 120, 10);
    assert_eq!(scenario.dispatched().last(), Some(&(1, 0)));
    assert_eq!(scenario.core.programs().steps[&StepId(1)].attempts, 1);
}

/// Steps at the first engine.
fn running(scenario: &Scenario) -> u32 {
    scenario.core.programs().workers[&WorkerId(0)].running_steps
}

#[test]
fn a_step_that_is_to_give_way_runs_until_it_has() {
    let mut scenario = queued_step();
    scenario.mute_gateway = true;
    scenario.arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(scenario.core.programs().counters.preemptions, 1);
    assert_eq!(scenario.dispatched().len(), 2, "the engine is full");
    assert_eq!(running(&scenario), 1);
    let step = StepId(1);
    scenario.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
    assert_eq!(scenario.dispatched()[2..], [(10, 0)]);
    assert_eq!(running(&scenario), 1);
    scenario.finish(10, 120, 10);
    assert_eq!(scenario.dispatched()[3..], [(1, 0)]);
}

#[test]
fn a_step_that_cannot_be_interrupted_never_counts_as_waiting() {
    for is_known_before in [false, true] {
        let mut scenario = queued_step();
        scenario.mute_gateway = true;
        let step = StepId(1);
        let runs_on = Event::Program(ProgramEvent::StepRunsOn { step });
        if is_known_before {
            scenario.handle(runs_on.clone());
        }
        scenario.arrive("p0", 10, 120);
        answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
        let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
        if !is_known_before {
            answer(&mut scenario, preempt, &[(1, 0.0, None)]);
            scenario.handle(runs_on);
        }
        let programs = scenario.core.programs();
        let is_asked = programs
            .asks
            .open()
            .values()
            .any(|ask| preempt(ask.purpose));
        assert!(!is_asked, "nobody else could give way");
        assert_eq!(programs.counters.preemptions, u64::from(!is_known_before));
        assert_eq!(programs.steps[&step].state.worker(), Some(WorkerId(0)));
        assert_eq!((running(&scenario), scenario.dispatched().len()), (1, 2));
        scenario.finish(1, 100, 10);
        assert_eq!(scenario.dispatched()[2..], [(10, 0)]);
    }
}

#[test]
fn another_step_gives_way_where_the_first_cannot() {
    let mut scenario = rollout();
    scenario.reconfigure(|config| config.rollout.engine_steps_max = 2);
    scenario.mute_gateway = true;
    // Even programs are on worker 0; the later ones are the more urgent.
    for program in [0, 2, 4] {
        scenario
            .arrive(&format!("p{program}"), program, 100)
            .wait_s(1);
        scenario.arrive(&format!("p{}", program + 1), program + 1, 100);
        scenario.wait_s(1);
    }
    let step = StepId(0);
    scenario.handle(Event::Program(ProgramEvent::StepRunsOn { step }));
    let preempted = |c: &Command| match c {
        Command::Program(ProgramCommand::PreemptStep { step }) if step.0 % 2 == 0 => Some(step.0),
        _ => None,
    };
    let preempted: Vec<_> = scenario.log.iter().filter_map(preempted).collect();
    assert_eq!(preempted, [0, 2]);
    let step = StepId(2);
    scenario.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
    assert_eq!(scenario.dispatched().last(), Some(&(4, 0)));
}

#[test]
fn another_scheduler_asks_again_which_steps_give_way() {
    let mut scenario = queued_step();
    scenario.mute_gateway = true;
    let step = StepId::of(GatewayId(7), 1);
    scenario.finish(1, 100, 10).arrive("p1", step.0, 120);
    answer(&mut scenario, route(step.0), &[(1, 1.0, Some(0))]);
    scenario.arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(
        scenario.core.programs().steps[&step].gives_way,
        GivesWay::Asked
    );
    // The gateway's steps outlive the scheduler, whose message may have been lost.
    scenario.handle(Event::Daemon(DaemonEvent::DaemonRestarted));
    assert_eq!(
        scenario.core.programs().steps[&step].gives_way,
        GivesWay::Unasked
    );
    scenario.arrive("p0", 11, 120);
    answer(&mut scenario, route(11), &[(0, 5.0, Some(0))]);
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    assert_eq!(scenario.core.programs().counters.preemptions, 2);
}

#[test]
fn a_step_taken_back_from_a_lost_engine_waits_for_another() {
    let mut scenario = queued_step();
    scenario.mute_gateway = true;
    // It has begun to answer, so that it is not taken from the engine that is lost.
    scenario.progress(1, 1).arrive("p0", 10, 120);
    answer(&mut scenario, route(10), &[(0, 5.0, Some(0))]);
    let preempt = |purpose| matches!(purpose, Purpose::Preempt { .. });
    answer(&mut scenario, preempt, &[(1, 0.0, None)]);
    scenario.lose(0);
    let step = StepId(1);
    scenario.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
    let programs = scenario.core.programs();
    assert_eq!(programs.live[&ProgramId(1)].placement, None);
    assert_eq!(running(&scenario), 0);
}
