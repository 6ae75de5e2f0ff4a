//! The policy as a whole.

use treadle_plugin::harness::{Finished, Harness, Live, draw};
use treadle_plugin::random::SplitMix64;

use super::*;

/// One step of one program, and what came after it.
#[derive(Clone, Copy)]
struct Sight {
    group: u64,
    output: u64,
    steps: u32,
    ok: f32,
    left: u64,
}

fn policy() -> HeddlePrediction {
    HeddlePrediction::default()
}

fn extra(sights: &[Sight]) -> Vec<f32> {
    let unknown = std::iter::repeat_n(f32::NAN, 2 * sights.len());
    unknown.chain(sights.iter().map(|sight| sight.ok)).collect()
}

fn column<T>(sights: &[Sight], field: impl Fn(&Sight) -> T) -> Vec<T> {
    sights.iter().map(field).collect()
}

fn learn(policy: &mut HeddlePrediction, sights: &[Sight]) {
    let group = column(sights, |sight| sight.group);
    let output = column(sights, |sight| sight.output);
    policy
        .learn(&FinishedColumns {
            group: &group,
            tokens: &column(sights, |sight| sight.output + 500),
            output_tokens: &output,
            steps: &column(sights, |sight| sight.steps),
            tool_ms: &column(sights, |sight| u64::from(sight.steps) * 400),
            remaining_tokens: &column(sights, |sight| sight.left),
            remaining_tool_ms: &column(sights, |sight| sight.left / 4),
            extra: &extra(sights),
        })
        .unwrap();
}

fn predict(policy: &mut HeddlePrediction, sights: &[Sight]) -> Estimates {
    let group = column(sights, |sight| sight.group);
    let output = column(sights, |sight| sight.output);
    policy
        .predict(&LiveColumns {
            group: &group,
            tokens: &column(sights, |sight| sight.output + 500),
            output_tokens: &output,
            steps: &column(sights, |sight| sight.steps),
            tool_ms: &column(sights, |sight| u64::from(sight.steps) * 400),
            extra: &extra(sights),
        })
        .unwrap()
}

/// A program of two steps: a long first one and a failed tool call bring much more.
fn program(random: &mut SplitMix64, group: u64) -> [Sight; 3] {
    let plan = 500 + draw::below(random, 3_000);
    let failed = draw::below(random, 2);
    let left = plan * (1 + 3 * failed) + draw::below(random, 200);
    let begin = Sight {
        group,
        output: 0,
        steps: 0,
        ok: -1.0,
        left: plan + 100 + left,
    };
    let planned = Sight {
        output: plan,
        steps: 1,
        left: 100 + left,
        ..begin
    };
    let tried = Sight {
        output: plan + 100,
        steps: 2,
        ok: 1.0 - failed as f32,
        left,
        ..begin
    };
    [begin, planned, tried]
}

#[test]
fn every_answer_is_valid() {
    for config in ["{}", r#"{"group_memory": 1, "memory": 1}"#] {
        Harness::new(config)
            .by_row()
            .prediction::<HeddlePrediction>();
    }
}

#[test]
fn asking_again_changes_nothing() {
    let mut random = SplitMix64::new(2);
    let mut policy = policy();
    let begun: Vec<Sight> = (0..300)
        .map(|place| program(&mut random, place % 9)[1])
        .collect();
    let first = predict(&mut policy, &begun[..10]);
    assert_eq!(first, predict(&mut policy, &begun[..10]));
    let before = policy.snapshot().unwrap();
    predict(&mut policy, &begun[..10]);
    assert_eq!(policy.snapshot().unwrap(), before);
}

#[test]
fn before_anything_is_learnt_the_configured_guess_is_given() {
    let estimates = HeddlePrediction::default()
        .predict(&LiveColumns {
            group: &[1],
            tokens: &[0],
            output_tokens: &[0],
            steps: &[0],
            tool_ms: &[0],
            extra: &[],
        })
        .unwrap();
    assert!((estimates.remaining_tokens[0] - 1_000.0).abs() < 1e-6);
    assert!((estimates.remaining_tool_s[0] - 10.0).abs() < 1e-6);
}

#[test]
fn estimates_come_closer_step_by_step() {
    let mut random = SplitMix64::new(7);
    let mut policy = policy();
    for group in 0..600 {
        learn(&mut policy, &program(&mut random, group));
    }
    let mut off = [0.0; 3];
    let mut covered = 0;
    for group in 1_000..1_200 {
        for (step, sight) in program(&mut random, group).iter().enumerate() {
            let found = predict(&mut policy, &[*sight]);
            off[step] += (found.remaining_tokens[0] - sight.left as f64).abs();
            covered += u32::from(found.remaining_tokens_p90[0] >= sight.left as f64);
        }
    }
    assert!(off[1] < off[0] * 0.9 && off[2] < off[1] * 0.5, "{off:?}");
    assert!(
        (440..=590).contains(&covered),
        "{covered} of 600 below the 90th percentile"
    );
}

#[test]
fn a_prompt_known_for_long_programs_is_expected_to_have_more() {
    let mut random = SplitMix64::new(8);
    let mut policy = policy();
    let of_size = |group: u64, total: u64| Sight {
        group,
        output: 0,
        steps: 0,
        ok: -1.0,
        left: total,
    };
    for _ in 0..20 {
        for group in 0..40 {
            let total = 1_000 * (1 + group % 10) + draw::below(&mut random, 1_000);
            learn(&mut policy, &[of_size(group, total)]);
        }
    }
    let found = predict(&mut policy, &[of_size(0, 0), of_size(9, 0)]).remaining_tokens;
    assert!(found[0] < 2_500.0 && found[1] > 7_000.0, "{found:?}");
}

#[test]
fn siblings_that_are_ahead_raise_the_estimate() {
    let mut random = SplitMix64::new(9);
    let mut policy = policy();
    let mut group_of = |group: u64, policy: &mut HeddlePrediction| {
        let size = 1 + draw::below(&mut random, 8);
        let programs: Vec<[Sight; 2]> = (0..8)
            .map(|_| {
                let total = size * (1_500 + draw::below(&mut random, 1_000));
                let begin = Sight {
                    group,
                    output: 0,
                    steps: 0,
                    ok: -1.0,
                    left: total,
                };
                let half = total / 2;
                [
                    begin,
                    Sight {
                        output: half,
                        steps: 1,
                        left: total - half,
                        ..begin
                    },
                ]
            })
            .collect();
        let begun: Vec<Sight> = programs.iter().map(|program| program[1]).collect();
        predict(policy, &begun);
        programs
    };
    for group in 0..200 {
        for program in group_of(group, &mut policy) {
            learn(&mut policy, &program);
        }
    }
    // New prompts, none of whose programs has finished; one more program of each begins.
    let mut pairs: Vec<(f64, f64)> = (300..340)
        .map(|group| {
            let begin = group_of(group, &mut policy)[0][0];
            (
                begin.left as f64,
                predict(&mut policy, &[begin]).remaining_tokens[0],
            )
        })
        .collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sum = |pairs: &[(f64, f64)]| pairs.iter().map(|pair| pair.1).sum::<f64>();
    assert!(sum(&pairs[20..]) > 1.5 * sum(&pairs[..20]), "{pairs:?}");
}

#[test]
fn a_snapshot_gives_the_same_estimates() {
    let mut random = SplitMix64::new(11);
    let mut policy = HeddlePrediction::default();
    let finished = Finished::draw(&mut random, 300, 0);
    policy.learn(&finished.columns()).unwrap();
    let mut successor = HeddlePrediction::default();
    successor.restore(&policy.snapshot().unwrap()).unwrap();
    let live = Live::draw(&mut random, 100, 0);
    assert_eq!(
        policy.predict(&live.columns()),
        successor.predict(&live.columns())
    );
}

#[test]
fn a_spoilt_snapshot_changes_nothing() {
    let mut policy = policy();
    learn(&mut policy, &program(&mut SplitMix64::new(1), 3));
    let before = policy.snapshot().unwrap();
    let mut infinite = before.clone();
    infinite[8..16].copy_from_slice(&f64::INFINITY.to_le_bytes());
    for spoilt in [&before[..before.len() - 1], b"treadle0", b"x", &infinite] {
        assert!(policy.restore(spoilt).is_err());
        assert_eq!(policy.snapshot().unwrap(), before);
    }
}

#[test]
fn memory_is_bounded() {
    let mut policy = HeddlePrediction::configure(r#"{"groups_max": 1024}"#).unwrap();
    let live = |group: u64| LiveColumns {
        group: Box::leak(Box::new([group])),
        tokens: &[900],
        output_tokens: &[400],
        steps: &[1],
        tool_ms: &[0],
        extra: &[],
    };
    (0..1_024).for_each(|group| drop(policy.predict(&live(group)).unwrap()));
    let when_full = policy.snapshot().unwrap().len();
    (0..1_500).for_each(|group| drop(policy.predict(&live(group)).unwrap()));
    assert_eq!(policy.snapshot().unwrap().len(), when_full);
}
