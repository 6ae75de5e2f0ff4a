//! The deterministic engine: fuel instead of time, one pattern for NaN.

use treadle_policy_runtime::{CallContext, Limits, PolicyEngine, PolicyFault, RuntimeError};

use crate::fixture::{CONTEXT, TRIGGER_ROWS, limits, load, policy, weigh, weigh_in};

const FUEL: u64 = 100_000;

fn engine() -> PolicyEngine {
    PolicyEngine::deterministic(limits(), FUEL).expect("the engine starts")
}

#[test]
fn the_same_calls_give_the_same_bits_and_use_the_same_fuel() {
    // Mixes random numbers and the clock in a loop whose length depends on them.
    let mix = "(local.set $i (i32.wrap_i64 (i64.and (call $random) (i64.const 1023))))
        (loop $more
          (f64.store (i32.const 700) (f64.div (f64.const 1)
            (f64.add (f64.load (i32.const 700))
              (f64.convert_i64_u (i64.add (call $now_ms) (i64.const 1))))))
          (local.set $i (i32.sub (local.get $i) (i32.const 1)))
          (br_if $more (i32.gt_s (local.get $i) (i32.const 0))))
        (return (call $answer (local.get 1) (f64.load (i32.const 700))))";
    let run = || {
        let mut policy = load(&engine(), &policy(mix));
        let mut told = Vec::new();
        for seed in 0..20 {
            let context = CallContext { seed, ..CONTEXT };
            let answer = weigh_in(&mut policy, TRIGGER_ROWS, &context).unwrap();
            told.push((answer[0].to_bits(), policy.fuel_used().unwrap()));
        }
        told
    };
    let first = run();
    assert_eq!(run(), first);
    let fuels: Vec<_> = first.windows(2).map(|at| at[1].1 - at[0].1).collect();
    assert!(fuels.iter().any(|&fuel| fuel != fuels[0]), "{fuels:?}");
}

#[test]
fn nan_has_one_pattern() {
    // The processor's own NaN of 0 / 0 has its sign bit set.
    let sign = "(return (call $answer (local.get 1)
        (f64.convert_i64_u (i64.shr_u
          (i64.reinterpret_f64 (f64.div
            (f64.convert_i32_u (i32.sub (local.get 1) (i32.const 7))) (f64.const 0)))
          (i64.const 63)))))";
    let mut policy = load(&engine(), &policy(sign));
    assert_eq!(
        weigh(&mut policy, TRIGGER_ROWS),
        Ok(vec![0.0; TRIGGER_ROWS])
    );
}

#[test]
fn an_endless_loop_ends_with_the_fuel_however_long_the_deadline() {
    let mut policy = load(&engine(), &policy("(loop $forever (br $forever))"));
    let context = CallContext {
        deadline_ms: Some(u64::MAX),
        ..CONTEXT
    };
    for restarts in 1..=3 {
        let before = policy.fuel_used().unwrap();
        let fault = weigh_in(&mut policy, TRIGGER_ROWS, &context).unwrap_err();
        assert_eq!(fault, PolicyFault::Fuel { fuel: FUEL });
        assert!(fault.to_string().contains("fuel") && fault.is_policys_fault());
        assert!(policy.fuel_used().unwrap() >= before + FUEL);
        assert_eq!(policy.restarts(), restarts);
    }
    assert_eq!(weigh(&mut policy, 2), Ok(vec![1.0; 2]));
}

#[test]
fn fuel_is_counted_on_such_an_engine_only_and_must_suffice_for_a_start() {
    let timed = PolicyEngine::new(limits()).unwrap();
    assert_eq!(load(&timed, &policy("")).fuel_used(), None);
    let started = PolicyEngine::deterministic(Limits::default(), 1);
    assert!(matches!(
        started,
        Err(RuntimeError::Limit {
            field: "fuel_per_call",
            ..
        })
    ));
}
