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

/// Extra columns up to `last-tool-ok`.
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

/// Lognormal totals of programs that are seen at their beginning and half-way.
fn long_tailed(random: &mut SplitMix64) -> u64 {
    let sum: f64 = (0..12)
        .map(|_| draw::below(random, 1_000) as f64 / 1_000.0)
        .sum();
    (2_000.0 * ((sum - 6.0) * 1.1).exp()) as u64 + 50
}

/// Learns programs that came to `total`; each was seen until `until`.
fn learn_until(policy: &mut HeddlePrediction, programs: &[(u64, u64)], tell: bool) {
    for (number, (total, until)) in programs.iter().enumerate() {
        let seen = total.min(until);
        let half = [0, seen / 2];
        let unknown = [-1.0; 8].into_iter();
        let returned = [-1.0, 0.0];
        let ended = [f32::from(until >= total || !tell); 2];
        let extra: Vec<f32> = unknown.chain(returned).chain(ended).collect();
        let learnt = policy.learn(&FinishedColumns {
            group: &[number as u64; 2],
            tokens: &half.map(|half| half + 500),
            output_tokens: &half,
            steps: &[0, 1],
            tool_ms: &[0, 0],
            remaining_tokens: &half.map(|half| seen - half),
            remaining_tool_ms: &[0, 0],
            extra: &extra,
        });
        learnt.unwrap();
    }
}

#[test]
fn a_program_that_was_cut_short_is_learnt_as_at_least_so_long() {
    let mut random = SplitMix64::new(21);
    let programs: Vec<(u64, u64)> = (0..4_000)
        .map(|_| {
            let total = long_tailed(&mut random);
            // Half of them may be cut short, which mostly meets the long ones.
            let until = if draw::below(&mut random, 2) == 0 {
                100 + draw::below(&mut random, 6_000)
            } else {
                u64::MAX
            };
            (total, until)
        })
        .collect();
    let mean = programs.iter().map(|(total, _)| *total as f64).sum::<f64>() / 4_000.0;
    let mut totals: Vec<u64> = programs.iter().map(|(total, _)| *total).collect();
    totals.sort_unstable();
    let off = |learnt: &[(u64, u64)], tell| {
        let mut policy = policy();
        learn_until(&mut policy, learnt, tell);
        let begin = Sight {
            group: u64::MAX,
            output: 0,
            steps: 0,
            ok: -1.0,
            left: 0,
        };
        let found = predict(&mut policy, &[begin]);
        let p90 = found.remaining_tokens_p90[0] / totals[3_600] as f64;
        (found.remaining_tokens[0] / mean, p90)
    };
    let ended: Vec<(u64, u64)> = programs.iter().copied().filter(|p| p.1 >= p.0).collect();
    let (told, untold, without) = (
        off(&programs, true),
        off(&programs, false),
        off(&ended, true),
    );
    let shown = format!("told {told:?}, taken for ends {untold:?}, left out {without:?}");
    assert!(
        (0.85..1.2).contains(&told.0) && (0.8..1.3).contains(&told.1),
        "{shown}"
    );
    assert!(untold.0 < 0.85 && without.0 < 0.85, "{shown}");
    assert!(untold.1 < 0.8 && without.1 < 0.8, "{shown}");
}

#[test]
fn what_was_cut_short_before_anything_came_teaches_nothing() {
    let mut policy = policy();
    learn_until(&mut policy, &[(900, u64::MAX)], true);
    let rows = |policy: &HeddlePrediction| policy.model.all.rows();
    let before = rows(&policy);
    learn_until(&mut policy, &[(900, 0)], true);
    assert!((rows(&policy) - before).abs() < 1e-9);
}

#[test]
fn the_outcome_of_the_tool_that_returned_is_used() {
    let mut random = SplitMix64::new(23);
    let mut policy = policy();
    let rows = |failed: u64, returned: bool| {
        let known = if returned { 1.0 - failed as f32 } else { -1.0 };
        [-1.0, 500.0, known, -1.0, f32::from(returned), 1.0]
    };
    let mut ask = |random: &mut SplitMix64, learns: bool, group: u64| {
        let failed = draw::below(random, 2);
        let left = [1_000, 8_000][failed as usize] + draw::below(random, 200);
        let both = [rows(failed, false), rows(failed, true)];
        let extra: Vec<f32> = (0..6).flat_map(|at| both.map(|row| row[at])).collect();
        let live = LiveColumns {
            group: &[group; 2],
            tokens: &[1_000; 2],
            output_tokens: &[500; 2],
            steps: &[1; 2],
            tool_ms: &[0, 300],
            extra: &extra,
        };
        if learns {
            let finished = FinishedColumns {
                group: live.group,
                tokens: live.tokens,
                output_tokens: live.output_tokens,
                steps: live.steps,
                tool_ms: live.tool_ms,
                remaining_tokens: &[left; 2],
                remaining_tool_ms: &[300, 0],
                extra: &extra,
            };
            policy.learn(&finished).unwrap();
        }
        let found = policy.predict(&live).unwrap().remaining_tokens;
        [0, 1].map(|row| (found[row] - left as f64).abs())
    };
    for group in 0..800 {
        ask(&mut random, true, group);
    }
    let mut off = [0.0; 2];
    for group in 1_000..1_200 {
        let errors = ask(&mut random, false, group);
        off = [off[0] + errors[0], off[1] + errors[1]];
    }
    assert!(off[1] < 0.5 * off[0], "{off:?}");
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
fn an_invalid_snapshot_changes_nothing() {
    let mut policy = policy();
    learn(&mut policy, &program(&mut SplitMix64::new(1), 3));
    let before = policy.snapshot().unwrap();
    let mut infinite = before.clone();
    infinite[8..16].copy_from_slice(&f64::INFINITY.to_le_bytes());
    for invalid in [&before[..before.len() - 1], b"treadle0", b"x", &infinite] {
        assert!(policy.restore(invalid).is_err());
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
