//! Where programs go, as calls see it.

use proptest::prelude::*;
use treadle_plugin::harness::{Assign, Harness, Migrate as Table, Workers};
use treadle_plugin::random::SplitMix64;
use treadle_plugin::{NO_CLASS, NOWHERE, Phase, RouteColumns};

use super::*;

const KINDS: &str = r#"{"classes": [
    {"capacity_tokens": 1000, "token_us": 10, "interference": [[1, 1], [64, 4]]},
    {"capacity_tokens": 8000, "token_us": 3, "interference": [[1, 1], [64, 8]]}]}"#;

fn workers(capacity_tokens: &[u64]) -> Workers {
    Workers::idle(capacity_tokens)
}

fn programs(remaining_tokens: &[f64]) -> Assign {
    let rows = remaining_tokens.len();
    Assign {
        group: vec![1; rows],
        tokens: vec![10; rows],
        remaining_tokens: remaining_tokens.to_vec(),
        last_worker: vec![NOWHERE; rows],
        growth: vec![-1.0; rows],
        tool_us: vec![-1.0; rows],
        preferred_class: vec![NO_CLASS; rows],
        extra: Vec::new(),
    }
}

fn policy(config: &str) -> HeddlePlacement {
    HeddlePlacement::configure(config).unwrap()
}

#[test]
fn every_answer_is_valid() {
    for config in [
        "{}",
        KINDS,
        r#"{"objective": "drained", "kv_bound": 0.5, "gain": 0.01, "moves_max": 100}"#,
        r#"{"order": "any", "migrate": "scaled", "gain": 0.01}"#,
        r#"{"migrate": "never"}"#,
        r#"{"objective": "mixed", "longest_tokens": 1}"#,
    ] {
        Harness::new(config).by_row().placement::<HeddlePlacement>();
    }
}

#[test]
fn without_classes_workers_are_as_fast_as_they_were_seen_to_be() {
    let mut workers = workers(&[8_000, 8_000, 8_000]);
    let mut lengths = vec![500.0; 40];
    lengths.extend([9_000.0, 9_500.0]);
    let programs = programs(&lengths);
    let mut places = |token_us: [f64; 3], step_us: [f64; 3]| {
        (workers.token_us, workers.step_us) = (token_us.to_vec(), step_us.to_vec());
        let assigned = policy("{}")
            .assign(&programs.columns_with(&workers))
            .expect("an answer");
        let of = |worker: u32| assigned.iter().filter(|at| **at == worker).count();
        (assigned[41], [of(0), of(1), of(2)])
    };
    let (longest, of_workers) = places([30_000.0, 7_500.0, 30_500.0], [60.0, 60.0, 61.0]);
    assert_eq!(longest, 1, "the fastest");
    assert!(of_workers[0].abs_diff(of_workers[2]) <= 1, "{of_workers:?}");
    // What has run nothing yet is as fast as the others; what was never seen at all, equally fast.
    let one_unknown = places([30_000.0, 7_500.0, -1.0], [60.0, 60.0, -1.0]);
    assert_eq!(one_unknown.0, 1);
    assert!(one_unknown.1[2] > 0, "{one_unknown:?}");
    let none_known = places([-1.0; 3], [-1.0; 3]);
    assert_eq!(none_known.1.iter().sum::<usize>(), 42);
    // A measurement of one program says nothing of programs beside each other: they are spread out.
    let (_, alone) = places([20_000.0, 20_100.0, 20_500.0], [-1.0; 3]);
    assert!(alone.iter().all(|count| *count > 0), "{alone:?}");
    // Where programs disturb one another more, fewer go together.
    let mut crowded = |step_us: f64| places([20_000.0; 3], [20.0, step_us, step_us]).1[0];
    assert!(crowded(10_000.0) > crowded(20.0));
}

#[test]
fn the_longest_get_the_fastest_worker_for_themselves() {
    let workers = workers(&[1_000, 8_000, 1_000]);
    let mut lengths = vec![500.0; 40];
    lengths.extend([9_000.0, 9_500.0]);
    let programs = programs(&lengths);
    let places = policy(KINDS)
        .assign(&programs.columns_with(&workers))
        .unwrap();
    assert_eq!(places[40..], [1, 1]);
    for worker in [0, 2] {
        let given = places.iter().filter(|place| **place == worker).count();
        assert!((8..=20).contains(&given), "{places:?}");
    }
}

#[test]
fn who_comes_later_joins_programs_of_its_length() {
    let workers = workers(&[1_000, 8_000, 1_000]);
    let mut policy = policy(KINDS);
    let lengths: Vec<f64> = (1..=60).map(|row| f64::from(row * row)).collect();
    let first = programs(&lengths);
    let places = policy.assign(&first.columns_with(&workers)).unwrap();
    for row in [0_usize, 20, 40, 59] {
        let late = programs(&[lengths[row]]);
        let place = policy.assign(&late.columns_with(&workers)).unwrap();
        assert_eq!(place[0], places[row], "{row}: {places:?}");
    }
    // A successor goes on with the same plan.
    let mut successor = HeddlePlacement::configure(KINDS).unwrap();
    successor.restore(&policy.snapshot().unwrap()).unwrap();
    let late = programs(&[3_000.0]);
    let columns = late.columns_with(&workers);
    assert_eq!(successor.assign(&columns), policy.assign(&columns));
}

#[test]
fn programs_that_come_one_by_one_are_separated_too() {
    let workers = workers(&[1_000, 1_000, 8_000]);
    let mut policy = policy(KINDS);
    let mut random = SplitMix64::new(3);
    let mut of_worker = vec![Vec::new(); 3];
    for program in 0..400 {
        let long = random.next_u64().is_multiple_of(20);
        let tokens = if long { 9_000.0 } else { 300.0 };
        let one = programs(&[tokens]);
        let place = policy.assign(&one.columns_with(&workers)).unwrap();
        if program >= 200 {
            of_worker[place[0] as usize].push(tokens);
        }
    }
    let mean = |lengths: &[f64]| lengths.iter().sum::<f64>() / lengths.len().max(1) as f64;
    assert!(
        mean(&of_worker[2]) > 2.0 * mean(&of_worker[0]),
        "{of_worker:?}"
    );
    assert!(of_worker.iter().all(|lengths| !lengths.is_empty()));
}

#[test]
fn where_work_decides_lengths_are_mixed_and_moves_even_out_numbers() {
    let workers = workers(&[1_000_000, 1_000_000]);
    let lengths: Vec<f64> = (1..=400).map(|row| f64::from(row) * 50.0).collect();
    let first = programs(&lengths);
    let long_at = |config: &str| {
        let mut policy = policy(config);
        let places = policy.assign(&first.columns_with(&workers)).unwrap();
        let long = places[300..].iter().filter(|place| **place == 0).count();
        (policy, long)
    };
    // No program can be long, so that work decides: half of the longest on each.
    let (mut even, long) = long_at(r#"{"objective": "mixed", "longest_tokens": 1}"#);
    assert!((45..=55).contains(&long), "{long}");
    // As many on each are left where they are, whichever are expected to be long.
    let mut at = vec![0; 20];
    at.extend([1; 20]);
    let mut left = vec![5_000.0; 20];
    left.extend([100.0; 20]);
    let table = placed(&at, &left, Phase::Acting);
    assert_eq!(even.migrate(&table.columns_with(&workers)).unwrap(), at);
    // A successor goes on like that.
    let mut successor = policy(r#"{"objective": "mixed", "longest_tokens": 1}"#);
    successor.restore(&even.snapshot().unwrap()).unwrap();
    assert_eq!(
        successor.migrate(&table.columns_with(&workers)).unwrap(),
        at
    );
    let (mut fluid, _) = long_at(r#"{"objective": "fluid", "gain": 0.01}"#);
    assert_ne!(fluid.migrate(&table.columns_with(&workers)).unwrap(), at);
}

#[test]
fn steps_are_not_routed() {
    let error = policy("{}").route(&RouteColumns::default()).unwrap_err();
    assert!(error.is_not_supported());
}

fn placed(at_worker: &[u32], remaining_tokens: &[f64], phase: Phase) -> Table {
    Table {
        at_worker: at_worker.to_vec(),
        tokens: vec![10; at_worker.len()],
        remaining_tokens: remaining_tokens.to_vec(),
        phase: vec![phase; at_worker.len()],
        growth: vec![-1.0; at_worker.len()],
        tool_us: vec![-1.0; at_worker.len()],
        preferred_class: vec![NO_CLASS; at_worker.len()],
        extra: Vec::new(),
    }
}

#[test]
fn a_program_that_turns_out_long_leaves_the_crowd_in_a_tool_call() {
    let workers = workers(&[1_000, 8_000]);
    let mut at = vec![0; 50];
    at.push(1);
    let mut lengths = vec![200.0; 51];
    lengths[7] = 20_000.0;
    let table = placed(&at, &lengths, Phase::Acting);
    let places = policy(KINDS)
        .migrate(&table.columns_with(&workers))
        .unwrap();
    let moved: Vec<usize> = (0..51).filter(|&row| places[row] != at[row]).collect();
    // The fast worker is then the last to end, and gives its short one away.
    assert_eq!(moved, [7, 50]);
    let reasoning = placed(&at, &lengths, Phase::Reasoning);
    let rest = KINDS.trim_start().trim_start_matches('{');
    let mut patient = policy(&format!("{{\"ahead\": false, {rest}"));
    let places = patient.migrate(&reasoning.columns_with(&workers));
    assert_eq!(places.unwrap(), at);
}

#[test]
fn programs_go_to_their_class_and_return_to_it() {
    let workers = Workers {
        token_us: vec![10.0, 30.0],
        step_us: vec![0.0; 2],
        prefill_us: vec![1.0; 2],
        hardware_class: vec![0, 1],
        ..workers(&[8_000; 2])
    };
    let mut programs = programs(&[100.0; 8]);
    let assigned = |programs: &Assign| {
        let mut policy = policy("{}");
        policy.assign(&programs.columns_with(&workers)).unwrap()
    };
    assert!(assigned(&programs).contains(&0), "it is the faster one");
    programs.preferred_class = vec![1; 8];
    assert_eq!(assigned(&programs), [1; 8]);
    // The second one fell back.
    let mut table = placed(&[0, 1], &[1_000.0; 2], Phase::Acting);
    table.preferred_class = vec![0; 2];
    let migrated = |config: &str| {
        let mut policy = policy(config);
        policy.migrate(&table.columns_with(&workers)).unwrap()
    };
    assert_eq!(migrated("{}"), [0, 0]);
    assert_eq!(migrated(r#"{"migrate": "never"}"#), [0, 1]);
}

#[test]
fn neighbours_in_rank_do_not_swap() {
    let workers = workers(&[1_000, 1_000]);
    let at = [0, 0, 0, 1, 1, 1];
    let table = placed(&at, &[100.0, 90.0, 79.0, 80.0, 70.0, 60.0], Phase::Acting);
    let places = policy("{}").migrate(&table.columns_with(&workers));
    assert_eq!(places.unwrap(), at);
}

#[test]
fn scaled_groups_are_those_of_the_paper() {
    let workers = workers(&[1_000, 1_000]);
    let config = r#"{"migrate": "scaled", "gain": 0.05}"#;
    let mut policy = policy(config);
    // 4 long, 12 short: the plan's sizes follow from the default profile.
    let lengths: Vec<f64> = (0..16)
        .map(|row| if row < 4 { 9_000.0 } else { 100.0 })
        .collect();
    let first = programs(&lengths);
    let places = policy.assign(&first.columns_with(&workers)).unwrap();
    let of_long = places[0];
    let table = placed(
        &[1 - of_long, of_long, of_long, of_long],
        &[9_000.0, 90.0, 80.0, 70.0],
        Phase::Acting,
    );
    let moved = policy.migrate(&table.columns_with(&workers)).unwrap();
    assert_eq!(moved[0], of_long);
    assert_eq!(moved[3], 1 - of_long);
}

proptest! {
    #[test]
    fn moves_end_and_never_make_the_end_later(seed in any::<u64>(), drained in any::<bool>()) {
        let objective = if drained { "drained" } else { "paper" };
        let rest = KINDS.trim_start().trim_start_matches('{');
        let mut policy = policy(&format!("{{\"objective\": \"{objective}\", \"ahead\": false, {rest}"));
        let workers = workers(&[1_000, 8_000, 1_000, 1_000]);
        let mut random = SplitMix64::new(seed);
        let mut table = Table::draw_with(&mut random, 40, 0, &workers);
        table.tokens.fill(1);
        for length in &mut table.remaining_tokens {
            *length = (random.next_u64() % 20_000) as f64;
        }
        let kinds = |policy: &HeddlePlacement, table: &Table| {
            let lengths = policy.lengths(&table.remaining_tokens);
            let workers = workers.columns();
            (Kinds::of(&policy.config, &workers, &table.tokens, heddle_partition::Habits::default(), &lengths, 40), lengths)
        };
        let end_us = |policy: &HeddlePlacement, table: &Table| {
            let (kinds, lengths) = kinds(policy, table);
            let end_us = |worker: u32| {
                let rows = (0..40).filter(|&row| table.at_worker[row] == worker);
                let member = |row: usize| heddle_partition::Member {
                    remaining: lengths[row],
                    context: 1.0,
                };
                let group: Vec<_> = rows.map(member).collect();
                kinds.end_us(worker as usize, &[], &group)
            };
            (0..4).map(end_us).fold(0.0, f64::max)
        };
        let mut last_us = end_us(&policy, &table);
        let mut rounds = 0;
        loop {
            let places = policy.migrate(&table.columns_with(&workers)).unwrap();
            let moved = (0..40).filter(|&row| places[row] != table.at_worker[row]);
            let moved: Vec<usize> = moved.collect();
            prop_assert!(moved.len() <= 8);
            prop_assert!(moved.iter().all(|&row| table.phase[row] == Phase::Acting));
            if moved.is_empty() {
                break;
            }
            table.at_worker = places;
            let now_us = end_us(&policy, &table);
            prop_assert!(now_us <= last_us);
            last_us = now_us;
            rounds += 1;
            prop_assert!(rounds < 200);
        }
    }
}
