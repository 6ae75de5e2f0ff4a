//! Policies that are wrong in one way each: the harness must find it.

use crate::harness::Harness;
use crate::{
    ActingColumns, ActiveColumns, AllocationPolicy, AnswerColumns, AssignColumns, CandidateColumns,
    Estimates, EvictionPolicy, Fate, GrantColumns, LiveColumns, PlacementPolicy, Policy,
    PolicyError, PredictionPolicy, PriorityPolicy, QueueColumns, RetentionColumns, RetentionPolicy,
    RewardPolicy, Scores, WaitingColumns,
};

/// Declares a policy whose configuration is in order.
macro_rules! policy {
    ($name:ident) => {
        struct $name;

        impl Policy for $name {
            fn configure(json: &str) -> Result<Self, PolicyError> {
                if json.contains("no_such_key") {
                    return Err(PolicyError::invalid_config("no_such_key is not known"));
                }
                Ok(Self)
            }
        }
    };
}

struct TakesAnyKey;

impl Policy for TakesAnyKey {
    fn configure(_json: &str) -> Result<Self, PolicyError> {
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
#[should_panic(expected = "leaves the one decision")]
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
    fn grant(&mut self, actions: &GrantColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(actions.units_max.to_vec())
    }
}

#[test]
#[should_panic(expected = "from pool")]
fn grants_must_be_there() {
    Harness::new("{}").allocation::<Generous>();
}

policy!(SaysNothingOfMany);

impl EvictionPolicy for SaysNothingOfMany {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![1.0; programs.len()])
    }

    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![0.0; programs.len()])
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![0.0; programs.len()])
    }
}

impl RetentionPolicy for SaysNothingOfMany {
    fn retain(
        &mut self,
        _free_tokens: i64,
        _wanted_tokens: u64,
        programs: &RetentionColumns<'_>,
    ) -> Result<Vec<Fate>, PolicyError> {
        Ok(vec![Fate::Keep; programs.len().min(40)])
    }
}

#[test]
#[should_panic(expected = "retain: 40 entries for")]
fn every_cache_must_have_a_fate() {
    Harness::new("{}").by_row().retention::<SaysNothingOfMany>();
}

policy!(TakesAll);

impl RewardPolicy for TakesAll {
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError> {
        Ok(Scores {
            totals: vec![0.0; programs.len()],
            ..Scores::default()
        })
    }

    fn select(&mut self, programs: &CandidateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok((0..programs.len() as u32).collect())
    }
}

#[test]
#[should_panic(expected = "were wanted")]
fn a_selection_must_not_be_too_long() {
    Harness::new("{}").reward::<TakesAll>();
}
