//! A scheduler takes over from another one that died: gateways continue with their steps, whatever
//! of the last moments is not on record.

use crate::scenario::Scenario;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::{OpenStep, StepState, reconcile};
use treadle_core::{Core, DaemonEvent, Event, Origin};
use treadle_model::{GatewayId, Span, StepId, WorkerId};

const GATEWAY: GatewayId = GatewayId(3);

fn step(counter: u64) -> u64 {
    StepId::of(GATEWAY, counter).0
}

fn open(counter: u64, at: Option<u32>) -> OpenStep {
    OpenStep {
        step: StepId::of(GATEWAY, counter),
        at: at.map(WorkerId),
    }
}

fn meet(s: &Scenario, open: &[OpenStep]) -> treadle_core::programs::Reconciliation {
    reconcile(s.core.programs(), GATEWAY, open)
}

fn state_of(s: &Scenario, counter: u64) -> StepState {
    s.core.programs().steps[&StepId::of(GATEWAY, counter)].state
}

#[test]
fn a_relayed_event_is_handled_once() {
    let mut s = Scenario::with_workers(&[1_000]);
    let release = Event::Program(ProgramEvent::ProgramReleased {
        program: "a".into(),
        aborted: false,
    });
    let now = s.now;
    let handle = |core: &mut Core, number| {
        let origin = Origin {
            gateway: GATEWAY,
            number,
        };
        core.handle_relayed(now, origin, &release)
    };
    assert!(handle(&mut s.core, 1));
    assert!(!handle(&mut s.core, 1), "it was sent again");
    assert!(handle(&mut s.core, 2));
    assert!(!handle(&mut s.core, 1));
    assert_eq!(s.core.state().gateways[&GATEWAY], 2);
    s.handle(Event::Daemon(DaemonEvent::GatewayLost { gateway: GATEWAY }));
    assert!(!handle(&mut s.core, 2), "it comes back and is not sure");
}

#[test]
fn a_program_is_not_over_because_no_daemon_ran() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.reconfigure(|config| config.program_idle_max = Span::from_secs(60));
    s.arrive("a", 1, 100).finish(1, 100, 10);
    s.now = s.now + Span::from_secs(3_600);
    s.handle(Event::Daemon(DaemonEvent::DaemonRestarted));
    s.wait_s(50);
    assert!(s.core.programs().program("a").is_some());
    s.wait_s(20);
    assert!(s.core.programs().program("a").is_none(), "it is silent");
}

#[test]
fn a_restart_ends_the_steps_of_the_schedulers_own_gateway_alone() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("own", 1, 100).arrive("other", step(1), 100);
    s.handle(Event::Daemon(DaemonEvent::DaemonRestarted));
    let left: Vec<_> = s.core.programs().steps.keys().copied().collect();
    assert_eq!(left, [StepId(step(1))]);
    s.handle(Event::Daemon(DaemonEvent::GatewayLost {
        gateway: GatewayId(GATEWAY.0 - 1),
    }));
    assert_eq!(s.core.programs().steps.len(), 1, "another gateway's");
    s.handle(Event::Daemon(DaemonEvent::GatewayLost { gateway: GATEWAY }));
    assert!(s.core.programs().steps.is_empty());
    assert_eq!(s.core.programs().last_step, 1);
}

#[test]
fn what_both_know_stays_as_it_is() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", step(1), 600).arrive("b", step(2), 600);
    let plan = meet(&s, &[open(1, Some(0)), open(2, None)]);
    assert_eq!(plan, treadle_core::programs::Reconciliation::default());
}

#[test]
fn a_lost_message_is_sent_again() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", step(1), 600);
    let plan = meet(&s, &[open(1, None)]);
    assert_eq!(plan.dispatch, [(StepId(step(1)), WorkerId(0))]);
    assert!(plan.events.is_empty() && plan.over.is_empty());
}

#[test]
fn steps_that_only_one_side_knows_are_over() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", step(1), 600);
    let plan = meet(&s, &[open(9, Some(0))]);
    assert_eq!(plan.over, [StepId(step(9))]);
    let cancelled = ProgramEvent::StepCancelled {
        step: StepId(step(1)),
    };
    assert_eq!(plan.events, [cancelled]);
}

#[test]
fn a_step_unknown_to_the_core_is_adopted_with_its_placement_and_charge() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("first", step(1), 600)
        .arrive("second", step(2), 600);
    assert_eq!(state_of(&s, 2), StepState::Waiting);
    let plan = meet(&s, &[open(1, Some(0)), open(2, Some(0))]);
    assert_eq!(plan.events.len(), 1);
    let sent = s.dispatched().len();
    for event in plan.events {
        s.handle(event.into());
    }
    assert_eq!(state_of(&s, 2).worker(), Some(WorkerId(0)));
    assert_eq!(s.dispatched().len(), sent, "it is not sent a second time");
    assert!(s.core.programs().waiting.queue().is_empty());
    let used = s.core.programs().workers[&WorkerId(0)].used_tokens();
    assert_eq!(used, 1_200, "charged, though it does not fit");
    s.finish(step(2), 600, 5).finish(step(1), 600, 5);
    assert!(s.core.programs().steps.is_empty());
}

#[test]
fn steps_of_one_program_unknown_to_the_core_are_not_dispatched_again() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("first", step(1), 600);
    s.arrive("both", step(2), 600).arrive("both", step(3), 600);
    s.arrive("both", step(4), 600);
    let sent = s.dispatched().len();
    let in_hand = [
        open(1, Some(0)),
        open(2, Some(0)),
        open(3, Some(0)),
        open(4, None),
    ];
    for event in meet(&s, &in_hand).events {
        s.handle(event.into());
    }
    assert_eq!(s.dispatched().len(), sent, "they are there already");
    s.wait_s(1);
    assert_eq!(s.dispatched()[sent..], [(step(4), 0)], "this one is not");
}

#[test]
fn an_adopted_step_moves_its_program() {
    let mut s = Scenario::with_workers(&[1_000, 2_000]);
    s.arrive("a", step(1), 600);
    assert_eq!(state_of(&s, 1).worker(), Some(WorkerId(1)));
    for event in meet(&s, &[open(1, Some(0))]).events {
        s.handle(event.into());
    }
    assert_eq!(state_of(&s, 1).worker(), Some(WorkerId(0)));
    let (from, to) = (WorkerId(1), WorkerId(0));
    assert!(s.core.programs().workers[&from].programs.is_empty());
    assert_eq!(s.core.programs().workers[&to].programs.len(), 1);
}

#[test]
fn other_settings_bind_what_waits_and_stay_with_the_state() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", step(1), 600).arrive("b", step(2), 600);
    let mut config = s.core.config().clone();
    config.queue_wait_max = treadle_model::Span::from_secs(5);
    s.handle(Event::Daemon(DaemonEvent::Configured {
        config: Box::new(config.clone()),
    }));
    let snapshot = s.core.state().clone();
    let again = Core::with_state(treadle_core::CoreConfig::default(), snapshot);
    assert_eq!(again.config(), &config);
    s.wait_s(6);
    assert_eq!(s.refusals().len(), 1, "b waited for as long as it may");
}

#[test]
fn a_step_at_an_unknown_engine_comes_back() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("first", step(1), 600).arrive("a", step(2), 600);
    let plan = meet(&s, &[open(1, Some(0)), open(2, Some(7))]);
    assert_eq!(plan.abort, [StepId(step(2))]);
    // The gateway reports that its attempt is over; the step still waits.
    s.fail(step(2), true);
    assert_eq!(state_of(&s, 2), StepState::Waiting);
    assert_eq!(s.core.programs().waiting.steps(), 1);
}

#[test]
fn steps_are_adopted_before_others_make_room_for_them() {
    let mut s = Scenario::with_workers(&[1_000, 900]);
    s.arrive("first", step(1), 600)
        .arrive("other", step(2), 800);
    s.arrive("runs", step(3), 500);
    assert_eq!(state_of(&s, 3), StepState::Waiting);
    let sent = s.dispatched().len();
    // The client of the first one left, and its memory went to the third one before that was on
    // record.
    for event in meet(&s, &[open(2, Some(1)), open(3, Some(0))]).events {
        s.handle(event.into());
    }
    assert_eq!(s.dispatched().len(), sent, "it is there already");
    assert_eq!(state_of(&s, 3).worker(), Some(WorkerId(0)));
}

#[test]
fn no_queued_step_that_may_be_adopted_is_dispatched() {
    let mut s = Scenario::ranked(&[1_000, 1_000]);
    s.reconfigure(|config| config.rollout.engine_steps_max = 1);
    for (program, n) in [("gave way", 3), ("elsewhere", 2), ("urgent", 1)] {
        s.arrive(program, step(n), 100).wait_s(1);
    }
    assert_eq!(state_of(&s, 1).worker(), Some(WorkerId(0)));
    assert_eq!(state_of(&s, 3), StepState::Waiting);
    s.mute_policy = true;
    let sent = s.dispatched().len();
    // The urgent one went to another worker, and the other one continued, before that was on
    // record.
    let in_hand = [open(1, Some(1)), open(2, Some(1)), open(3, Some(0))];
    for event in meet(&s, &in_hand).events {
        s.handle(event.into());
    }
    assert_eq!(s.dispatched().len(), sent, "they are there already");
    assert_eq!(state_of(&s, 3).worker(), Some(WorkerId(0)));
}
