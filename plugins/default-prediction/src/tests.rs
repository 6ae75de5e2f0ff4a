//! The policy as a whole.

use treadle_plugin::harness::{Finished, Harness, Live};
use treadle_plugin::random::SplitMix64;

use super::*;

fn learn(policy: &mut DefaultPrediction, group: u64, steps: u32, remaining_tokens: &[u64]) {
    let rows = remaining_tokens.len();
    policy
        .learn(&FinishedColumns {
            group: &vec![group; rows],
            tokens: &vec![0; rows],
            output_tokens: &vec![0; rows],
            steps: &vec![steps; rows],
            tool_ms: &vec![0; rows],
            remaining_tokens,
            remaining_tool_ms: &vec![4_000; rows],
            extra: &[],
        })
        .unwrap();
}

fn predict(policy: &mut DefaultPrediction, group: u64, steps: u32) -> Estimates {
    policy
        .predict(&LiveColumns {
            group: &[group],
            tokens: &[0],
            output_tokens: &[0],
            steps: &[steps],
            tool_ms: &[0],
            extra: &[],
        })
        .unwrap()
}

#[test]
fn every_answer_is_valid() {
    for config in ["{}", r#"{"groups_max": 2, "memory": 1, "job_weight": 0}"#] {
        Harness::new(config)
            .by_row()
            .prediction::<DefaultPrediction>();
    }
}

#[test]
fn before_anything_is_learnt_the_configured_guess_is_given() {
    let estimates = predict(&mut DefaultPrediction::default(), 1, 0);
    assert_eq!(estimates.remaining_tokens, [1_000.0]);
    assert_eq!(estimates.remaining_tool_s, [10.0]);
}

#[test]
fn a_group_follows_its_own_programs_and_a_new_one_the_jobs() {
    let mut policy = DefaultPrediction::default();
    learn(&mut policy, 1, 2, &[8_000; 60]);
    learn(&mut policy, 2, 2, &[500; 60]);
    let tokens =
        |policy: &mut DefaultPrediction, group| predict(policy, group, 2).remaining_tokens[0];
    let [long, short, new] = [1, 2, 3].map(|group| tokens(&mut policy, group));
    assert!(long > 7_000.0 && short < 1_000.0, "{long} {short}");
    assert!((3_000.0..5_500.0).contains(&new), "{new}");
    // Another stage has its own figures.
    assert_eq!(predict(&mut policy, 1, 20).remaining_tokens, [1_000.0]);
}

#[test]
fn a_snapshot_gives_the_same_estimates() {
    let mut random = SplitMix64::new(11);
    let mut policy = DefaultPrediction::default();
    let finished = Finished::draw(&mut random, 300, 0);
    policy.learn(&finished.columns()).unwrap();
    let mut successor = DefaultPrediction::default();
    successor.restore(&policy.snapshot().unwrap()).unwrap();
    let live = Live::draw(&mut random, 100, 0);
    assert_eq!(
        policy.predict(&live.columns()),
        successor.predict(&live.columns())
    );
}

#[test]
fn an_invalid_snapshot_changes_nothing() {
    let mut policy = DefaultPrediction::default();
    learn(&mut policy, 1, 2, &[8_000; 5]);
    let before = policy.snapshot().unwrap();
    let mut negative = before.clone();
    negative[15] = 0xbf;
    negative[14] = 0xf0;
    for invalid in [&before[..before.len() - 1], b"treadle0", b"x", &negative] {
        assert!(policy.restore(invalid).is_err());
        assert_eq!(policy.snapshot().unwrap(), before);
    }
}

#[test]
fn memory_is_bounded() {
    let mut policy = DefaultPrediction::configure(r#"{"groups_max": 10}"#).unwrap();
    let of_ten = {
        (0..10).for_each(|group| learn(&mut policy, group, 0, &[1]));
        policy.snapshot().unwrap().len()
    };
    (0..500).for_each(|group| learn(&mut policy, group, 0, &[1]));
    assert_eq!(policy.snapshot().unwrap().len(), of_ten);
}
