//! A rollout as a prediction policy sees it: asked about the programs in flight, given those that
//! have ended.

use treadle_plugin::{PolicyError, PredictionPolicy};

use super::seen::{Remaining, Seen, SeenTable};
use treadle_engine_model::engine::content_hash;
use treadle_simulator::workload::AgentRun;

/// Steps after which predictions are compared.
pub(super) const LOOKS: usize = 3;
/// Rows of a question, as the daemon puts them.
const ROUND_MAX: usize = 1_024;

/// A rollout and what models read of its prompts.
pub(super) struct Rollout {
    pub(super) runs: Vec<AgentRun>,
    /// Of each run's prompt.
    pub(super) scores: Vec<f64>,
}

/// What was predicted of a program after some steps: all tokens that it generates in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Prediction {
    pub(super) total: f64,
    pub(super) total_p90: f64,
}

/// Predictions of each run after 0, 1 and 2 steps; `None` where it had ended by then.
pub(super) type Predictions = Vec<[Option<Prediction>; LOOKS]>;

/// Puts a rollout to a policy, all programs step by step at the same pace: first it is given the
/// programs that have ended with their last step, then asked about all others. Programs come in no
/// order, so that those of a group are met in different questions.
pub(super) fn replay(
    policy: &mut impl PredictionPolicy,
    rollout: &Rollout,
    extra: &[&str],
) -> Result<Predictions, PolicyError> {
    let runs = &rollout.runs;
    let mut places: Vec<usize> = (0..runs.len()).collect();
    places.sort_by_key(|place| {
        let name: Vec<u64> = runs[*place].id.bytes().map(u64::from).collect();
        content_hash(&name)
    });
    let mut predictions = vec![[None; LOOKS]; runs.len()];
    let mut steps = 0;
    while !places.is_empty() {
        let (over, live): (Vec<usize>, _) = places
            .iter()
            .partition(|place| runs[**place].steps.len() <= steps);
        learn(policy, rollout, &over, extra)?;
        for round in live.chunks(ROUND_MAX) {
            let rows: Vec<Seen> = round
                .iter()
                .map(|place| Seen::after(&runs[*place], steps, rollout.scores[*place]))
                .collect();
            let given = policy.predict(&SeenTable::new(&rows, &[], extra).live())?;
            if steps >= LOOKS {
                continue;
            }
            for (row, place) in round.iter().enumerate() {
                let done = rows[row].output_tokens as f64;
                predictions[*place][steps] = Some(Prediction {
                    total: done + given.remaining_tokens[row],
                    total_p90: done + given.remaining_tokens_p90[row],
                });
            }
        }
        places = live;
        steps += 1;
    }
    Ok(predictions)
}

fn learn(
    policy: &mut impl PredictionPolicy,
    rollout: &Rollout,
    over: &[usize],
    extra: &[&str],
) -> Result<(), PolicyError> {
    let mut rows = Vec::new();
    let mut remaining: Vec<Remaining> = Vec::new();
    for (count, place) in over.iter().enumerate() {
        let run = &rollout.runs[*place];
        for steps in 0..run.steps.len() {
            let seen = Seen::after(run, steps, rollout.scores[*place]);
            remaining.push(seen.remaining(run));
            rows.push(seen);
        }
        if rows.len() >= ROUND_MAX || count + 1 == over.len() {
            policy.learn(&SeenTable::new(&rows, &remaining, extra).finished())?;
            rows.clear();
            remaining.clear();
        }
    }
    Ok(())
}
