//! A policy that misbehaves in one call: the fault is classified, and the next call is answered.

use std::time::{Duration, Instant};

use treadle_policy_runtime::{
    ActingColumns, CallContext, Limits, LogLevel, PolicyEngine, PolicyFault,
};

use crate::fixture::{
    CONTEXT, HOT_DEADLINE_MS, TRIGGER_ROWS, engine, limits, load, policy, weigh, weigh_in,
};

const TIMEOUT: PolicyFault = PolicyFault::Timeout {
    deadline_ms: HOT_DEADLINE_MS,
};

/// The fault of the peculiar call, after checking that calls before and after it work.
fn fault(peculiarity: &str) -> PolicyFault {
    let engine = engine();
    let mut instance = load(&engine, &policy(peculiarity));
    assert_eq!(weigh(&mut instance, 2), Ok(vec![1.0; 2]));
    let fault = weigh(&mut instance, TRIGGER_ROWS).unwrap_err();
    assert_eq!(
        weigh(&mut instance, 3),
        Ok(vec![1.0; 3]),
        "after the fault {fault}"
    );
    let is_replaced = !matches!(fault, PolicyFault::PolicyError(_));
    assert_eq!(
        instance.restarts(),
        u64::from(is_replaced),
        "after the fault {fault}"
    );
    fault
}

#[test]
fn a_spinning_guest_is_stopped_every_time() {
    let engine = engine();
    let mut instance = load(&engine, &policy("(loop $forever (br $forever))"));
    for _ in 0..5 {
        let begin = Instant::now();
        let fault = weigh(&mut instance, TRIGGER_ROWS).unwrap_err();
        assert_eq!(fault, TIMEOUT);
        let took = begin.elapsed();
        // Hardly more than the deadline on an idle machine; the bound allows for a busy one.
        assert!(
            took >= Duration::from_millis(HOT_DEADLINE_MS - 1) && took < Duration::from_secs(2)
        );
        assert_eq!(weigh(&mut instance, 1), Ok(vec![1.0]));
    }
    assert_eq!(instance.restarts(), 5);
}

#[test]
fn a_deadline_holds_after_the_ticker_has_gone_to_sleep() {
    let engine = engine();
    let mut instance = load(&engine, &policy("(loop $forever (br $forever))"));
    // Longer than the ticker waits before it parks.
    std::thread::sleep(Duration::from_millis(120));
    let fault = weigh(&mut instance, TRIGGER_ROWS).unwrap_err();
    assert_eq!(fault, TIMEOUT);
}

#[test]
fn the_caller_may_give_another_deadline() {
    let mut instance = load(&engine(), &policy("(loop $forever (br $forever))"));
    let context = CallContext {
        deadline_ms: Some(7),
        ..CONTEXT
    };
    let fault = weigh_in(&mut instance, TRIGGER_ROWS, &context).unwrap_err();
    assert_eq!(fault, PolicyFault::Timeout { deadline_ms: 7 });
}

#[test]
fn a_replacement_can_be_started_before_it_is_needed() {
    let mut instance = load(&engine(), &policy("(unreachable)"));
    assert!(weigh(&mut instance, TRIGGER_ROWS).is_err());
    assert_eq!(instance.memory_bytes(), 0);
    assert_eq!(instance.warm(&CONTEXT), Ok(()));
    assert_eq!(instance.memory_bytes(), 32 << 16);
    assert_eq!(weigh(&mut instance, 1), Ok(vec![1.0]));
    assert_eq!(instance.restarts(), 1);
}

#[test]
fn a_trap_is_reported() {
    let PolicyFault::Trap { detail } = fault("(unreachable)") else {
        panic!("no trap")
    };
    assert!(detail.contains("unreachable"), "{detail}");
}

#[test]
fn a_trap_carries_the_error_logged_before_it() {
    let told = fault("(call $log (i32.const 4) (i32.const 1120) (i32.const 24)) (unreachable)");
    let detail = "does not like seven rows".to_owned();
    assert_eq!(told, PolicyFault::Trap { detail });
}

#[test]
fn a_memory_bomb_meets_the_limit() {
    let told = fault(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
         (unreachable)",
    );
    assert_eq!(told, PolicyFault::Memory { max: 64 << 20 });
}

#[test]
fn a_guest_that_has_grown_large_is_replaced() {
    let engine = engine();
    let mut instance = load(&engine, &policy("(drop (memory.grow (i32.const 800)))"));
    assert_eq!(
        weigh(&mut instance, TRIGGER_ROWS),
        Ok(vec![1.0; TRIGGER_ROWS])
    );
    assert_eq!(instance.restarts(), 1);
    // 32 pages and twice 800 more would exceed the limit of 1,024.
    assert_eq!(
        weigh(&mut instance, TRIGGER_ROWS),
        Ok(vec![1.0; TRIGGER_ROWS])
    );
}

#[test]
fn endless_recursion_exhausts_the_stack_of_the_guest_only() {
    assert_eq!(
        fault("(drop (call $recurse (i64.const 0)))"),
        PolicyFault::Stack
    );
}

#[test]
fn answers_are_checked() {
    for (peculiarity, told) in [
        (
            "(return (call $answer (i32.const 8) (f64.const 1)))",
            "8 values for 7 rows",
        ),
        (
            "(return (call $answer (local.get 1) (f64.const nan)))",
            "NaN in row 0",
        ),
        (
            "(return (call $answer (local.get 1) (f64.const 1.5)))",
            "1.5 in row 0",
        ),
        (
            "(return (call $list (i32.const 0) (i32.const 100000)))",
            "100000 values for 7 rows",
        ),
        (
            "(return (call $list (i32.const 2097144) (i32.const 7)))",
            "out of bounds",
        ),
    ] {
        let PolicyFault::BadOutput { detail } = fault(peculiarity) else {
            panic!("accepted {peculiarity}")
        };
        assert!(detail.contains(told), "{peculiarity}: {detail}");
    }
}

#[test]
fn no_answer_is_read_that_exceeds_every_limit() {
    let engine = PolicyEngine::new(Limits {
        output_rows_max: 100,
        snapshot_bytes_max: 1,
        state_bytes_max: 1,
        ..limits()
    })
    .unwrap();
    let long = policy("(return (call $list (i32.const 0) (i32.const 100000)))");
    let Err(PolicyFault::BadOutput { detail }) = weigh(&mut load(&engine, &long), TRIGGER_ROWS)
    else {
        panic!("accepted")
    };
    assert!(detail.contains("too much data"), "{detail}");
}

#[test]
fn the_policys_own_error_is_passed_on_and_costs_no_restart() {
    assert_eq!(
        fault("(return (call $error))"),
        PolicyFault::PolicyError("odd: does not like seven rows".to_owned())
    );
}

#[test]
fn the_guest_sees_the_time_of_the_decision() {
    let engine = engine();
    let mut instance = load(
        &engine,
        &policy(
            "(return (call $answer (local.get 1)
               (f64.div (f64.convert_i64_u (call $now_ms)) (f64.const 10000))))",
        ),
    );
    assert_eq!(
        weigh(&mut instance, TRIGGER_ROWS),
        Ok(vec![0.25; TRIGGER_ROWS])
    );
}

#[test]
fn a_flood_of_log_lines_is_cut_and_survives_a_restart() {
    let engine = engine();
    let mut instance = load(
        &engine,
        &policy(
            "(loop $more
               (call $log (i32.const 2) (i32.const 1120) (i32.const 24))
               (local.set $i (i32.add (local.get $i) (i32.const 1)))
               (br_if $more (i32.lt_u (local.get $i) (i32.const 1000))))
             (unreachable)",
        ),
    );
    assert!(matches!(
        weigh(&mut instance, TRIGGER_ROWS),
        Err(PolicyFault::Trap { .. } | PolicyFault::Timeout { .. })
    ));
    assert_eq!(weigh(&mut instance, 1), Ok(vec![1.0]));
    let lines = instance.log_lines();
    // A burst of 20, and what the rate allows on a slow machine.
    assert!((20..60).contains(&lines.len()), "{} lines", lines.len());
    assert_eq!(lines[0].message, "does not like seven rows");
    assert_eq!((lines[0].level, lines[0].now_ms), (LogLevel::Info, 2_500));
}

#[test]
fn contradicting_columns_are_not_the_policys_fault() {
    let engine = engine();
    let mut instance = load(&engine, &policy(""));
    let programs = ActingColumns {
        tokens: &[1, 2],
        phase_ms: &[1],
        ..ActingColumns::default()
    };
    let eviction = instance.as_eviction_mut().unwrap();
    let fault = eviction.weigh(&CONTEXT, &programs).unwrap_err();
    assert!(matches!(&fault, PolicyFault::BadInput { detail } if detail.contains("phase_ms")));
    assert!(!fault.is_policys_fault());
    let rows = engine.limits().output_rows_max + 1;
    assert!(matches!(
        weigh(&mut instance, rows),
        Err(PolicyFault::BadInput { .. })
    ));
    assert_eq!(instance.restarts(), 0);
}

#[test]
fn instances_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<treadle_policy_runtime::PolicyInstance>();
    is_send::<treadle_policy_runtime::PolicyModule>();
}
