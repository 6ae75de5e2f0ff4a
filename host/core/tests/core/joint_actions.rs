//! The interplay of programs and their actions.

use crate::executor::{Executor, action, units};
use treadle_core::actions::{ActionEvent, ActionSpec, Outcome};
use treadle_core::memory::Capacity;
use treadle_core::programs::{
    Attribution, CacheAction, PolicyAnswer, ProgramEvent, Purpose, StepArrival, StepTokens,
};
use treadle_model::{
    ActionId, EngineKind, FinishReason, PolicyRef, Span, StepId, Timestamp, WorkerId,
};

/// An acting program, with its cache on an engine of its own.
fn program(e: &mut Executor, number: u32, context: u64, engine: u64) {
    let worker = WorkerId(number);
    e.handle(ProgramEvent::WorkerAdded {
        worker,
        url: format!("http://{number}").into(),
        engine: EngineKind::Vllm,
        capacity: Capacity {
            tokens: Some(engine),
            ..Capacity::default()
        },
        role: None,
    });
    let step = StepId(u64::from(number));
    e.handle(ProgramEvent::StepArrived(StepArrival {
        step,
        program: name(number).into(),
        job: "job".into(),
        prompt_tokens: context,
        exact: true,
        prompt_bytes: 0,
        text: None,
        output_tokens_max: None,
        prefix: vec![],
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    }));
    e.wait_s(5);
    e.handle(ProgramEvent::StepFinished {
        step,
        tokens: StepTokens {
            prompt: context,
            output: 0,
            cached: None,
        },
        finish: FinishReason::Stop,
        weights: None,
    });
    let place = e.core.programs().program(name(number)).unwrap().placement;
    assert_eq!(place.map(|place| place.worker), Some(worker));
}

fn name(number: u32) -> &'static str {
    ["small", "large"][number as usize]
}

/// Its cache is offloaded to host memory.
fn offload(e: &mut Executor, program: &str) {
    let id = e.core.programs().keys[program];
    let asks = e.core.programs().asks.open();
    let retains = |purpose: &Purpose| matches!(purpose, Purpose::Retain { .. });
    let open = asks.iter().find(|(_, open)| retains(&open.purpose));
    let ask = *open.expect("it is asked").0;
    e.handle(ProgramEvent::PolicyAnswered {
        ask,
        policy: PolicyRef("test".into()),
        answer: PolicyAnswer::CacheActions {
            actions: vec![(id, CacheAction::Offload)],
        },
        attribution: Attribution::default(),
    });
    let tokens = e
        .core
        .programs()
        .program(program)
        .expect("live")
        .context_tokens;
    e.handle(ProgramEvent::ProgramOffloaded {
        program: id,
        copy: "copy".into(),
        tokens,
        bytes: tokens,
    });
    assert!(e.core.programs().memory.offloads().held().contains_key(&id));
}

/// When a program's first action is expected to begin.
fn begins(e: &Executor, program: &str) -> Timestamp {
    let program = e.core.programs().program(program).expect("live");
    program.actions.values().next().expect("it waits").since
}

fn of(program: &str, seconds: u64) -> ActionSpec {
    ActionSpec {
        program: Some(program.into()),
        durations: vec![Span::from_secs(seconds)],
        ..action(&[("cpu", &[1])])
    }
}

/// Two programs, the larger of which fills its engine, and an action that takes the only core.
fn set_up(joint_order: bool) -> (Executor, ActionId) {
    let mut e = Executor::with(&[units("cpu", 1)], |config| {
        config.actions.joint_order = joint_order;
        config.actions.joint_retention = true;
    });
    program(&mut e, 1, 40_000, 43_000);
    program(&mut e, 0, 1_000, 50_000);
    let running = e.submit(ActionSpec {
        durations: vec![Span::from_secs(20)],
        ..action(&[("cpu", &[1])])
    });
    e.begin(running);
    (e, running)
}

#[test]
fn what_holds_up_memory_goes_first_until_others_starve() {
    let order = |joint_order: bool, waits_s: u64| {
        let (mut e, running) = set_up(joint_order);
        let nobodys = e.submit(action(&[("cpu", &[1])]));
        let small = e.submit(of("small", 1));
        e.wait_s(waits_s);
        let large = e.submit(of("large", 1));
        let mut order = Vec::new();
        let mut next = running;
        for _ in 0..3 {
            e.exit(next);
            next = *e.running.keys().next().expect("one runs");
            order.push(next);
        }
        (order, [nobodys, small, large])
    };
    let (started, [nobodys, small, large]) = order(true, 0);
    assert_eq!(started, [large, nobodys, small]);
    let (started, as_they_came) = order(true, 31);
    assert_eq!(started, as_they_came);
    let (started, as_they_came) = order(false, 0);
    assert_eq!(started, as_they_came);
}

#[test]
fn of_those_that_hold_up_memory_the_most_goes_first() {
    let mut e = Executor::with(&[units("cpu", 1)], |config| {
        config.actions.joint_order = true;
    });
    program(&mut e, 1, 40_000, 43_000);
    program(&mut e, 0, 10_000, 10_750);
    let running = e.submit(action(&[("cpu", &[1])]));
    let small = e.submit(of("small", 1));
    let large = e.submit(of("large", 1));
    e.exit(running);
    assert!(e.running.contains_key(&large));
    e.exit(large);
    assert!(e.running.contains_key(&small));
}

#[test]
fn what_goes_first_is_expected_back_sooner() {
    let (mut e, running) = set_up(true);
    e.begin(running);
    let from = e.now;
    e.submit(of("small", 10));
    e.submit(of("large", 7));
    // The larger one does not wait for the smaller, which holds no memory that others need.
    assert_eq!(begins(&e, "small"), from + Span::from_secs(20));
    assert_eq!(begins(&e, "large"), from + Span::from_secs(20));
    let (mut e, running) = set_up(false);
    e.begin(running);
    e.submit(of("small", 10));
    e.submit(of("large", 7));
    assert_eq!(begins(&e, "large"), from + Span::from_secs(20 + 10));
}

#[test]
fn only_what_is_served_before_an_action_counts_as_its_wait() {
    let mut e = Executor::with(&[units("cpu", 1)], |config| {
        config.actions.joint_order = true;
        config.actions.joint_retention = true;
    });
    program(&mut e, 1, 40_000, 43_000);
    program(&mut e, 0, 10_000, 10_750);
    let running = e.submit(ActionSpec {
        durations: vec![Span::from_secs(20)],
        ..action(&[("cpu", &[1])])
    });
    e.begin(running);
    let from = e.now;
    e.submit(of("small", 10));
    e.submit(of("large", 7));
    // Both hold memory that others need, the larger one more of it.
    assert_eq!(begins(&e, "large"), from + Span::from_secs(20));
    e.submit(of("large", 3));
    assert_eq!(begins(&e, "large"), from + Span::from_secs(20));
}

#[test]
fn a_wait_is_foreseen_for_tools_of_which_nothing_is_known() {
    let (mut e, running) = set_up(false);
    let undeclared = ActionSpec {
        durations: Vec::new(),
        ..of("large", 0)
    };
    e.submit(undeclared);
    let large = e.core.programs().keys["large"];
    e.idle.clear();
    e.wait_s(10);
    let idle = e.idle[&large];
    assert!(idle >= Span::from_secs(10), "{idle:?}");
    e.exit(running);
}

#[test]
fn what_holds_up_host_memory_goes_before_what_holds_up_nothing() {
    let order = |host_tokens_max: u64| {
        let mut e = Executor::with(&[units("cpu", 1)], |config| {
            config.actions.joint_order = true;
            config.kv.retention = true;
            config.kv.host_tokens_max = host_tokens_max;
            config.kv.host_tokens_per_s = 10_000;
            config.kv.prefill_tokens_per_s = 100;
            config.kv.offload_link_ppm = 1_000_000;
            config.kv.transfer_max = Span::from_secs(600);
        });
        program(&mut e, 1, 40_000, 43_000);
        offload(&mut e, "large");
        program(&mut e, 0, 1_000, 50_000);
        let running = e.submit(action(&[("cpu", &[1])]));
        let small = e.submit(of("small", 1));
        let large = e.submit(of("large", 1));
        e.exit(running);
        (e.running.keys().copied().next(), small, large)
    };
    let (first, _, large) = order(50_000);
    assert_eq!(first, Some(large));
    let (first, small, _) = order(500_000);
    assert_eq!(first, Some(small));
}

/// Estimates of calls come from past runs without their waits.
#[test]
fn tools_are_learnt_without_their_waits() {
    let (mut e, running) = set_up(false);
    let undeclared = |program: &str| ActionSpec {
        durations: Vec::new(),
        ..of(program, 0)
    };
    e.begin(running);
    let waits = e.submit(undeclared("small"));
    e.wait_s(100).exit(running);
    e.begin(waits).wait_s(4).exit(waits);
    let tool = &e.core.programs().estimates.tools()["job"]["tool"];
    assert_eq!((tool.finished, tool.longest_us), (1, 4_000_000));
    let withdrawn = e.submit(undeclared("large"));
    e.handle(ActionEvent::ActionCancelled { action: withdrawn });
    assert_eq!(
        e.core.programs().estimates.tools()["job"]["tool"].finished,
        1
    );
}

#[test]
fn what_began_while_it_was_to_stop_is_learnt_without_its_wait_too() {
    let (mut e, running) = set_up(false);
    e.exit(running);
    let id = e.submit(of("small", 7));
    e.wait_s(20).cancel(id);
    e.wait_s(3).begin(id).wait_s(2);
    e.end(id, Outcome::Killed { signal: 15 });
    let tool = &e.core.programs().estimates.tools()["job"]["tool"];
    assert_eq!((tool.finished, tool.longest_us), (1, 2_000_000));
}

#[test]
fn a_program_is_expected_back_when_its_action_has_waited_and_run() {
    let (mut e, running) = set_up(false);
    let ends = |e: &Executor| {
        let program = e.core.programs().program("small").expect("live");
        let action = program.actions.values().next();
        action.map(|action| action.ends.expect("that is known"))
    };
    let from = e.now;
    e.submit(of("large", 10));
    let id = e.submit(of("small", 7));
    assert_eq!(ends(&e), Some(from + Span::from_secs(20 + 10 + 7)));
    e.wait_s(3).exit(running);
    let first = *e.running.keys().next().expect("one runs");
    e.begin(first).exit(first);
    assert_eq!(ends(&e), Some(from + Span::from_secs(3 + 7)));
    e.wait_s(2).begin(id);
    assert_eq!(ends(&e), Some(from + Span::from_secs(3 + 2 + 7)));
    e.exit(id);
    assert_eq!(ends(&e), None);
    assert_eq!(
        e.core.programs().estimates.tools()["job"]["tool"].finished,
        2
    );
}

#[test]
fn with_its_program_an_action_ends() {
    let (mut e, running) = set_up(false);
    let waits = e.submit(of("small", 7));
    let other = e.submit(of("large", 7));
    e.handle(ProgramEvent::ProgramReleased {
        program: "small".into(),
        aborted: false,
    });
    assert_eq!(e.answered[&waits], Outcome::Cancelled);
    e.exit(running);
    e.handle(ProgramEvent::ProgramReleased {
        program: "large".into(),
        aborted: true,
    });
    assert!(e.stopped.contains(&other));
    e.end(other, Outcome::Killed { signal: 15 });
    assert_eq!(e.answered[&other], Outcome::Cancelled);
}

#[test]
fn a_program_is_not_idle_while_its_action_waits() {
    let (mut e, running) = set_up(false);
    let id = e.submit(ActionSpec {
        run_max: Span::from_secs(100_000),
        ..of("small", 7)
    });
    e.exit(running).begin(id).wait_s(7_000);
    let lives = |e: &Executor, key: &str| e.core.programs().program(key).is_some();
    assert!(lives(&e, "small") && !lives(&e, "large"));
    // Its idle limit after its action is as long as after a step.
    e.exit(id).wait_s(3_500);
    assert!(lives(&e, "small"));
    e.wait_s(200);
    assert!(!lives(&e, "small"));
    assert!(e.now > Timestamp(0));
}
