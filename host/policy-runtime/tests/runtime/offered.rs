//! Host functions: random numbers, the configuration, the state.

use std::time::Duration;

use treadle_plugin::random::SplitMix64;
use treadle_policy_runtime::{
    BindingState, CallContext, InstanceOptions, Limits, LogSink, PolicyEngine, PolicyFault,
};

use crate::fixture::{CONTEXT, TRIGGER_ROWS, engine, limits, load_with, policy, weigh, weigh_in};

/// Answers the next random number, scaled to 0 to 1.
const DRAW: &str = "(return (call $answer (local.get 1)
    (f64.mul (f64.convert_i64_u (i64.shr_u (call $random) (i64.const 11)))
      (f64.const 0x1p-53))))";

/// Stores one byte more under the key `odd`, and answers the bytes that were there,
/// in hundredths. With four of them it traps after that.
const COUNT: &str = "
    (call $state_get (i32.const 1100) (i32.const 3) (i32.const 600))
    (if (i32.load8_u (i32.const 600)) (then (local.set $i (i32.load (i32.const 608)))))
    (call $state_set (i32.const 1100) (i32.const 3) (i32.const 1120)
      (i32.add (local.get $i) (i32.const 1)) (i32.const 600))
    (if (i32.load8_u (i32.const 600)) (then
      (i32.store8 (i32.const 512) (i32.const 1))
      (memory.copy (i32.const 516) (i32.const 604) (i32.const 16))
      (return (i32.const 512))))
    (if (i32.eq (local.get $i) (i32.const 4)) (then (unreachable)))
    (return (call $answer (local.get 1)
      (f64.div (f64.convert_i32_u (local.get $i)) (f64.const 100))))";

#[test]
fn random_numbers_are_those_of_the_bindings_and_the_calls_seed() {
    let engine = engine();
    let options = InstanceOptions {
        seed: 11,
        ..InstanceOptions::default()
    };
    let mut policy = load_with(&engine, &policy(DRAW), &options);
    let mut draw = |seed| {
        let context = CallContext { seed, ..CONTEXT };
        weigh_in(&mut policy, TRIGGER_ROWS, &context).unwrap()[0]
    };
    let expected = |seed: u64| {
        let mut stream = SplitMix64::new(SplitMix64::new(11).next_u64() ^ seed);
        (stream.next_u64() >> 11) as f64 * 2f64.powi(-53)
    };
    for seed in [3, 4, 3] {
        assert_eq!(draw(seed).to_bits(), expected(seed).to_bits());
    }
}

#[test]
fn the_configuration_can_be_read() {
    let size = "(call $config (i32.const 600))
        (return (call $answer (local.get 1)
          (f64.div (f64.convert_i32_u (i32.load (i32.const 604))) (f64.const 100))))";
    let options = InstanceOptions::configured(r#"{"k": 1}"#);
    let mut policy = load_with(&engine(), &policy(size), &options);
    assert_eq!(
        weigh(&mut policy, TRIGGER_ROWS),
        Ok(vec![0.08; TRIGGER_ROWS])
    );
}

#[test]
fn state_outlives_restarts_and_goes_over_to_the_successor() {
    let engine = engine();
    let mut first = load_with(&engine, &policy(COUNT), &InstanceOptions::default());
    for count in 0..4 {
        let found = weigh(&mut first, TRIGGER_ROWS);
        assert_eq!(found, Ok(vec![f64::from(count) / 100.0; TRIGGER_ROWS]));
    }
    let trapped = weigh(&mut first, TRIGGER_ROWS);
    assert!(matches!(trapped, Err(PolicyFault::Trap { .. })));
    assert_eq!(
        weigh(&mut first, TRIGGER_ROWS),
        Ok(vec![0.05; TRIGGER_ROWS])
    );
    assert_eq!(first.restarts(), 1);

    let state = first.into_state();
    assert_eq!(state.get("odd").map(<[u8]>::len), Some(6));
    let saved = state.to_bytes();
    let options = InstanceOptions {
        state: BindingState::from_bytes(&saved, &Limits::default()).unwrap(),
        ..InstanceOptions::default()
    };
    let mut second = load_with(&engine, &policy(COUNT), &options);
    assert_eq!(
        weigh(&mut second, TRIGGER_ROWS),
        Ok(vec![0.06; TRIGGER_ROWS])
    );
    assert_eq!(second.state().bytes(), 10);
}

#[test]
fn a_full_state_is_reported_to_the_policy() {
    let engine = PolicyEngine::new(Limits {
        state_bytes_max: 5,
        ..limits()
    })
    .unwrap();
    let mut policy = load_with(&engine, &policy(COUNT), &InstanceOptions::default());
    assert!(weigh(&mut policy, TRIGGER_ROWS).is_ok());
    assert!(weigh(&mut policy, TRIGGER_ROWS).is_ok());
    let Err(PolicyFault::PolicyError(said)) = weigh(&mut policy, TRIGGER_ROWS) else {
        panic!("stored")
    };
    assert!(said.starts_with("state-full: "), "{said}");
    assert_eq!((policy.state().bytes(), policy.restarts()), (5, 0));
}

#[test]
fn a_value_can_be_deleted_once() {
    let delete = "(call $state_set (i32.const 1100) (i32.const 3) (i32.const 1120)
          (i32.const 9) (i32.const 600))
        (local.set $i (call $state_delete (i32.const 1100) (i32.const 3)))
        (local.set $i (i32.add (i32.mul (local.get $i) (i32.const 10))
          (call $state_delete (i32.const 1100) (i32.const 3))))
        (return (call $answer (local.get 1)
          (f64.div (f64.convert_i32_u (local.get $i)) (f64.const 100))))";
    let mut policy = load_with(&engine(), &policy(delete), &InstanceOptions::default());
    assert_eq!(
        weigh(&mut policy, TRIGGER_ROWS),
        Ok(vec![0.10; TRIGGER_ROWS])
    );
    assert!(policy.state().is_empty());
}

#[test]
fn the_log_can_be_followed() {
    let (sink, tail) = LogSink::bounded(1);
    let options = InstanceOptions {
        log_sink: Some(sink),
        ..InstanceOptions::default()
    };
    let say = "(call $log (i32.const 3) (i32.const 1120) (i32.const 24))";
    let mut policy = load_with(&engine(), &policy(say), &options);
    weigh(&mut policy, TRIGGER_ROWS).unwrap();
    weigh(&mut policy, TRIGGER_ROWS).unwrap();
    let line = tail.next_within(Duration::ZERO).unwrap();
    assert_eq!(line.message, "does not like seven rows");
    assert_eq!((line.now_ms, tail.dropped()), (CONTEXT.now_ms, 1));
    assert_eq!(policy.log_lines().len(), 2);
}
