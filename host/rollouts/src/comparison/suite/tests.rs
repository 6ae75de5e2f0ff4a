//! Consistency of a comparison suite: each system once, parts that add up, nothing that depends on
//! threads.

use super::*;
use crate::comparison::{
    AdmissionKind, AllocationKind, FULL, PlacementKind, PredictionKind, PriorityKind, VERL,
};
use std::collections::BTreeSet;

fn small(parts: &[Part]) -> SuiteOptions {
    SuiteOptions {
        tasks: vec![AgentTask::Search, AgentTask::Math],
        models: vec![AgentModel::Qwen3Of14B],
        parts: parts.to_vec(),
        gpus: 8,
        prompts: 2,
        ..SuiteOptions::default()
    }
}

fn silent(_: &str) {}

#[test]
fn each_system_is_run_once_under_a_name_of_its_own() {
    let options = SuiteOptions::default();
    for model in AgentModel::ALL {
        let systems = parts::systems(&options, model);
        let names: BTreeSet<&str> = systems.iter().map(|system| system.name).collect();
        assert_eq!(names.len(), systems.len(), "{names:?}");
        for part in Part::ALL.into_iter().filter(|part| part.has(model)) {
            for baseline in part.baselines() {
                for system in [baseline.champion, baseline.system] {
                    let found = systems.iter().filter(|each| each.is_like(&system)).count();
                    assert_eq!(found, 1, "{system:?}");
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_and_the_repetition_change_nothing() {
    let one = small(&[Part::Systems]);
    let two = SuiteOptions {
        jobs: 2,
        ..one.clone()
    };
    let bytes = |options| {
        let suite = Suite::run(options, &silent).unwrap();
        serde_json::to_string(&suite).unwrap()
    };
    assert_eq!(bytes(&one), bytes(&two));
}

#[test]
fn what_is_left_adds_up_and_no_rollout_beats_the_bound() {
    let options = small(&[Part::Systems, Part::Oracle]);
    let suite = Suite::run(&options, &silent).unwrap();
    for distance in suite.distances() {
        let left = distance.left;
        let sum = left.placing_s + left.queue_and_prefill_s + left.interference_s + left.own_s;
        let gap_s = distance.makespan_s - distance.bound_s;
        assert!((sum - gap_s).abs() < 1e-6, "{distance:?}");
        assert!(distance.ratio >= 1.0, "{distance:?}");
        let is_full = distance.system == FULL.name;
        assert_eq!(distance.prediction_error_s.is_some(), is_full);
    }
}

#[test]
fn figures_are_medians_with_names_of_their_own() {
    let options = SuiteOptions {
        seeds: vec![1, 2, 3],
        tasks: vec![AgentTask::Search],
        ..small(&Part::ALL)
    };
    let suite = Suite::run(&options, &silent).unwrap();
    let figures = suite.figures();
    let names: BTreeSet<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names.len(), figures.len());
    let value = |name: &str| {
        let found = figures.iter().find(|figure| figure.name == name);
        found.unwrap_or_else(|| panic!("{name}: {names:?}")).value
    };
    let mut ratios: Vec<f64> = [1, 2, 3].map(|seed| ratio_to_verl(&suite, seed)).to_vec();
    ratios.sort_unstable_by(f64::total_cmp);
    assert_eq!(
        value("vs.verl.search.qwen3-14b").to_bits(),
        ratios[1].to_bits()
    );
    assert_eq!(value("best_vs.verl").to_bits(), ratios[1].to_bits());
    for name in [
        "worst_vs.any",
        "distance_to_bound.best",
        "scheduling.autellix.search",
        "longest_waited_s.heddle.search",
        "placement.least_load.search",
        "placement_alike.cache_aware.search",
        "allocation.fix8.search",
        "tuned.slime.search.qwen3-14b",
        "worst_vs.tuned",
        "without.migration.search.qwen3-14b",
        "with.oracle.search.qwen3-14b",
        "distance_to_bound.treadle_fix8.search.qwen3-14b",
    ] {
        assert!(value(name).is_finite());
    }
}

fn ratio_to_verl(suite: &Suite, seed: u64) -> f64 {
    let tokens_per_s = |system| {
        let outcome = suite.outcome(AgentTask::Search, AgentModel::Qwen3Of14B, seed, system);
        outcome.unwrap().report.tokens_per_s
    };
    tokens_per_s(&FULL) / tokens_per_s(&VERL)
}

#[test]
fn kinds_are_found_by_their_names() {
    for (name, kind) in PredictionKind::NAMED {
        assert_eq!(
            (kind.name(), PredictionKind::named(name)),
            (*name, Some(*kind))
        );
    }
    for (name, kind) in PriorityKind::NAMED {
        assert_eq!(
            (kind.name(), PriorityKind::named(name)),
            (*name, Some(*kind))
        );
    }
    for (name, kind) in PlacementKind::NAMED {
        assert_eq!(
            (kind.name(), PlacementKind::named(name)),
            (*name, Some(*kind))
        );
    }
    for (name, kind) in AllocationKind::NAMED {
        assert_eq!(
            (kind.name(), AllocationKind::named(name)),
            (*name, Some(*kind))
        );
    }
    for (name, kind) in AdmissionKind::NAMED {
        assert_eq!(
            (kind.name(), AdmissionKind::named(name)),
            (*name, Some(*kind))
        );
    }
    assert_eq!(PriorityKind::named("heddles"), None);
}

#[test]
fn invalid_options_name_the_remedy() {
    let cell = Cell {
        gpus: 4,
        prompts: 1,
        ..Cell::of(AgentTask::Search, AgentModel::Qwen3Of14B, 1)
    };
    let comparison = Comparison::new(cell).unwrap();
    let fix8 = System {
        allocation: AllocationKind::Fix8,
        ..VERL
    };
    let error = comparison.run(&fix8).unwrap_err().to_string();
    assert!(
        error.starts_with("allocation: `fix8` uses 0 of 4 GPUs"),
        "{error}"
    );
    let error = comparison.run_failing(&VERL, &[(0, 4, 1)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "fail: there is no worker 4; verl has workers 0 to 3"
    );

    let runs = comparison.runs().to_vec();
    let unknown = Comparison::of_runs(cell, runs, Vec::new()).unwrap();
    assert!(unknown.run(&VERL).is_ok());
    let error = unknown.run(&FULL).unwrap_err().to_string();
    assert!(error.contains("an earlier rollout"), "{error}");

    let too_large = Cell {
        language_model: Some(treadle_engine_model::hardware::GLM_46),
        ..cell
    };
    let error = Comparison::new(too_large).err().unwrap().to_string();
    assert!(
        error.starts_with("gpus: glm-4.6 does not fit on 4 H100"),
        "{error}"
    );
}

#[test]
fn programs_outlive_workers_that_fail() {
    let cell = Cell {
        gpus: 8,
        prompts: 2,
        ..Cell::of(AgentTask::Search, AgentModel::Qwen3Of14B, 1)
    };
    let comparison = Comparison::new(cell).unwrap();
    let calm = comparison.run(&VERL).unwrap();
    let failures: Vec<_> = (0..8)
        .map(|worker| (2_000_000, worker, 5_000_000))
        .collect();
    let failed = comparison.run_failing(&VERL, &failures).unwrap();
    assert_eq!(failed.programs, calm.programs);
    assert_eq!(failed.refused, 0);
    assert_eq!(failed.output_tokens, calm.output_tokens);
    assert_ne!(failed.mean, calm.mean);
}
