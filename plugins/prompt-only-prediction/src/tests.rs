//! The policy as a whole.

use treadle_plugin::harness::{Finished, Harness, Live, draw};
use treadle_plugin::random::SplitMix64;

use super::*;

#[test]
fn every_answer_is_valid() {
    for config in ["{}", r#"{"memory": 1}"#] {
        Harness::new(config)
            .by_row()
            .prediction::<PromptOnlyPrediction>();
    }
}

fn predict(policy: &mut PromptOnlyPrediction, steps: u32, output: u64, extra: &[f32]) -> f64 {
    let live = LiveColumns {
        group: &[1],
        tokens: &[0],
        output_tokens: &[output],
        steps: &[steps],
        tool_ms: &[0],
        extra,
    };
    policy.predict(&live).unwrap().remaining_tokens[0]
}

#[test]
fn the_prompt_decides_and_nothing_that_comes_after() {
    let mut random = SplitMix64::new(3);
    let mut policy = PromptOnlyPrediction::configure("{}").unwrap();
    assert!((predict(&mut policy, 0, 0, &[512.0, 0.0]) - 1_000.0).abs() < 1e-6);
    for _ in 0..500 {
        let score = draw::below(&mut random, 5) as f32 - 2.0;
        let tokens = 100 + draw::below(&mut random, 1_000);
        let total = (tokens as f32 * 4.0 * score.exp2()) as u64;
        let finished = FinishedColumns {
            group: &[1],
            tokens: &[0],
            output_tokens: &[0],
            steps: &[0],
            tool_ms: &[0],
            remaining_tokens: &[total],
            remaining_tool_ms: &[1_000],
            extra: &[tokens as f32, score],
        };
        policy.learn(&finished).unwrap();
    }
    for (score, tokens) in [(1.0, 300.0_f32), (-2.0, 900.0), (0.0, 500.0)] {
        let wanted = f64::from(tokens) * 4.0 * f64::from(score).exp2();
        let found = predict(&mut policy, 0, 0, &[tokens, score]);
        assert!((found / wanted - 1.0).abs() < 0.15, "{found} for {wanted}");
        let later = predict(&mut policy, 3, 100, &[tokens, score]);
        assert!((found - later - 100.0).abs() < 1e-6);
    }
}

#[test]
fn a_snapshot_gives_the_same_estimates_and_an_invalid_one_changes_nothing() {
    let mut random = SplitMix64::new(11);
    let mut policy = PromptOnlyPrediction::configure("{}").unwrap();
    policy
        .learn(&Finished::draw(&mut random, 300, 2).columns())
        .unwrap();
    let snapshot = policy.snapshot().unwrap();
    let mut successor = PromptOnlyPrediction::configure("{}").unwrap();
    successor.restore(&snapshot).unwrap();
    let live = Live::draw(&mut random, 100, 2);
    let estimates = policy.predict(&live.columns());
    assert_eq!(estimates, successor.predict(&live.columns()));
    for invalid in [&snapshot[..snapshot.len() - 8], b"prompt-0", b"x"] {
        assert!(successor.restore(invalid).is_err());
    }
    assert_eq!(estimates, successor.predict(&live.columns()));
}
