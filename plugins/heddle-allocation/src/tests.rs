//! Plans against all others.

use proptest::collection::vec;
use proptest::prelude::*;
use treadle_plugin::harness::Harness;

use super::*;

fn config(search: Search, objective: Goal, seed: u64) -> Config {
    Config {
        objective,
        search,
        seed: Some(seed),
        ..Config::default()
    }
}

fn columns<'a>(
    gpus: u32,
    token_us: &'a [f64],
    expected_tokens: &'a [u64],
) -> ParallelismColumns<'a> {
    ParallelismColumns {
        gpus,
        degree: &[1, 2, 4, 8],
        token_us,
        step_us: &[-1.0; 4],
        prefill_us: &[-1.0; 4],
        capacity_tokens: &[60_000, 200_000, 500_000, 1_100_000],
        expected_tokens,
        prompt_tokens: 0,
        growth: -1.0,
        tool_us: -1.0,
    }
}

/// What the policy answers, and when the answer's latest worker ends.
fn answer(config: Config, call: &ParallelismColumns<'_>) -> (Vec<u32>, f64) {
    let cluster = Cluster::new(&config, call);
    let mut policy = HeddleAllocation { config };
    let counts = policy.parallelism(call).unwrap();
    let plan: Vec<u32> = counts.iter().copied().take(cluster.degrees.len()).collect();
    (counts, cluster.end_us(&plan))
}

#[test]
fn every_answer_is_valid() {
    for config in [
        "{}",
        r#"{"search": "annealing", "objective": "drained", "cooling": 0.9}"#,
        r#"{"classes": [{"degree": 2, "token_us": 5, "interference": [[8, 2.5]]}]}"#,
    ] {
        Harness::new(config)
            .by_row()
            .cases(60)
            .allocation::<HeddleAllocation>();
    }
}

#[test]
fn a_long_tail_gets_fast_workers_and_the_rest_many() {
    let mut lengths = vec![800; 20_000];
    lengths.extend([40_000; 4]);
    let call = columns(16, &[7_000.0, 5_500.0, 4_500.0, 4_000.0], &lengths);
    for search in [Search::Auto, Search::Annealing] {
        let (counts, _) = answer(config(search, Goal::Paper, 1), &call);
        assert!(counts[2] + counts[3] >= 1, "{search:?}: {counts:?}");
        assert!(counts[0] + counts[1] >= 2, "{search:?}: {counts:?}");
    }
}

#[test]
fn very_many_devices_are_planned_in_parts() {
    let lengths: Vec<u64> = (0..9_000).map(|row| 1 + row * row % 5_003).collect();
    let call = columns(5_000, &[7_000.0, 4_500.0, 3_000.0, 2_200.0], &lengths);
    let config = Config {
        cooling: 0.9,
        ..config(Search::Auto, Goal::Paper, 1)
    };
    let (counts, _) = answer(config, &call);
    let used: u32 = counts.iter().zip(call.degree).map(|(n, d)| n * d).sum();
    assert!((4_900..=5_000).contains(&used), "{counts:?}");
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let lengths: Vec<u64> = (0..300).map(|row| 1 + row * row % 4_001).collect();
    let call = columns(48, &[7_000.0, 4_500.0, 3_000.0, 2_200.0], &lengths);
    let ask = |seed| answer(config(Search::Annealing, Goal::Paper, seed), &call);
    assert_eq!(ask(7), ask(7));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_plan_of_one_degree_is_better_and_none_at_all_than_the_exhaustive(
        gpus in 1..25_u32,
        mut token_us in vec(1..100_u32, 4),
        lengths in vec(1..50_000_u64, 1..60),
        seed in any::<u64>(),
        drained in any::<bool>(),
    ) {
        token_us.sort_unstable_by(|left, right| right.cmp(left));
        let token_us: Vec<f64> = token_us.into_iter().map(f64::from).collect();
        let call = columns(gpus, &token_us, &lengths);
        let goal = if drained { Goal::Drained } else { Goal::Paper };
        let annealing = config(Search::Annealing, goal, seed);
        let cluster = Cluster::new(&annealing, &call);
        let (counts, annealed_us) = answer(annealing, &call);
        let used: u32 = counts.iter().zip(call.degree).map(|(count, degree)| count * degree).sum();
        prop_assert!(used <= gpus);
        for plan in cluster.homogeneous() {
            prop_assert!(annealed_us <= cluster.end_us(&plan));
        }
        let (_, best_us) = answer(config(Search::Exhaustive, goal, seed), &call);
        prop_assert!(best_us <= annealed_us);
        let mut all = f64::INFINITY;
        cluster.each_plan(&mut |plan| {
            all = all.min(cluster.end_us(plan));
            true
        });
        prop_assert!((best_us - all).abs() <= 1e-9 * all);
    }
}
