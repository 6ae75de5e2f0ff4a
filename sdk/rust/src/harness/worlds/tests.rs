//! Policies that are wrong in one way each: the harness must find it.

use crate::harness::Harness;
use crate::{
    ActingColumns, ActionColumns, ActiveColumns, AllocationPolicy, AssignColumns, CacheAction,
    Config, Estimates, EvictionPolicy, LiveColumns, NoConfig, PlacementPolicy, Policy, PolicyError,
    PredictionPolicy, PreemptColumns, PriorityPolicy, QueueColumns, RetentionColumns,
    WaitingColumns,
};

/// Declares a policy whose configuration is in order.
macro_rules! policy {
    ($name:ident) => {
        struct $name;

        impl Policy for $name {
            type Config = NoConfig;

            fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
                Ok(Self)
            }
        }
    };
}

struct TakesAnyKey;

#[derive(Default)]
struct AnyKey;

impl Config for AnyKey {
    fn read(_: &serde_json::Map<String, serde_json::Value>) -> Result<Self, String> {
        Ok(Self)
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({})
    }
}

impl Policy for TakesAnyKey {
    type Config = AnyKey;

    fn with_config(_: AnyKey) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl PriorityPolicy for TakesAnyKey {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![0.0; programs.len()])
    }
}

#[test]
#[should_panic(expected = "an unknown key is accepted")]
fn an_unknown_key_must_be_refused() {
    Harness::new("{}").priority::<TakesAnyKey>();
}

policy!(DividesByTokens);

impl PriorityPolicy for DividesByTokens {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(programs
            .tokens
            .iter()
            .map(|&tokens| 1.0 / tokens as f64)
            .collect())
    }
}

#[test]
#[should_panic(expected = "score: inf in row")]
fn scores_must_be_finite() {
    Harness::new("{}").priority::<DividesByTokens>();
}

policy!(ScoresByPlace);

impl PriorityPolicy for ScoresByPlace {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok((0..programs.len()).map(|row| row as f64).collect())
    }
}

#[test]
#[should_panic(expected = "depends on where the row stands")]
fn scores_by_row_must_not_depend_on_the_place() {
    Harness::new("{}").by_row().priority::<ScoresByPlace>();
}

#[test]
fn scores_may_depend_on_the_place_unless_asked() {
    Harness::new("{}").priority::<ScoresByPlace>();
}

policy!(LeavesAll);

impl PriorityPolicy for LeavesAll {
    fn score(&mut self, _programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Err(PolicyError::not_supported())
    }
}

#[test]
#[should_panic(expected = "leaves the only decision")]
fn the_one_decision_must_be_taken() {
    Harness::new("{}").priority::<LeavesAll>();
}

policy!(OverConfident);

impl PredictionPolicy for OverConfident {
    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        Ok(Estimates {
            remaining_tokens: vec![10.0; programs.len()],
            remaining_tokens_p90: vec![9.0; programs.len()],
            remaining_tool_s: vec![0.0; programs.len()],
        })
    }
}

#[test]
#[should_panic(expected = "not below the mean")]
fn a_percentile_must_not_be_below_the_mean() {
    Harness::new("{}").prediction::<OverConfident>();
}

policy!(Homesick);

impl PlacementPolicy for Homesick {
    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(programs.last_worker.to_vec())
    }
}

#[test]
#[should_panic(expected = "4294967295 in row")]
fn a_place_must_be_a_worker() {
    Harness::new("{}").placement::<Homesick>();
}

policy!(Generous);

impl AllocationPolicy for Generous {
    fn arrange(&mut self, actions: &ActionColumns<'_>) -> Result<Vec<i32>, PolicyError> {
        let most = |row: usize| match actions.options(row).len() {
            0 => -1,
            options => i32::try_from(options - 1).unwrap_or(-1),
        };
        Ok((0..actions.len()).map(most).collect())
    }
}

#[test]
#[should_panic(expected = "no longer has")]
fn what_starts_must_be_there() {
    Harness::new("{}").allocation::<Generous>();
}

policy!(SaysNothingOfMany);

impl EvictionPolicy for SaysNothingOfMany {
    const FUNCTIONS: &'static [&'static str] = &["weigh", "pause-order", "restore-order", "retain"];

    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![1.0; programs.len()])
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![0.0; programs.len()])
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![0.0; programs.len()])
    }

    fn retain(&mut self, programs: &RetentionColumns<'_>) -> Result<Vec<CacheAction>, PolicyError> {
        Ok(vec![CacheAction::Keep; programs.len().min(40)])
    }
}

#[test]
#[should_panic(expected = "retain: 40 entries for")]
fn every_cache_must_have_an_action() {
    Harness::new("{}").by_row().eviction::<SaysNothingOfMany>();
}

policy!(ForgetsToSay);

impl PriorityPolicy for ForgetsToSay {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![0.0; programs.len()])
    }

    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        Ok(vec![false; steps.len()])
    }
}

#[test]
#[should_panic(expected = "preempt is implemented but not in FUNCTIONS")]
fn what_is_answered_must_be_named() {
    Harness::new("{}").priority::<ForgetsToSay>();
}
