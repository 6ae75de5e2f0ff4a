//! A rollout as a prediction policy sees it: asked about the programs in flight, given those that
//! have ended.

use treadle_plugin::{PolicyError, PredictionPolicy};

use super::observation::{Observation, ObservationTable, Remaining};
use treadle_engine_model::engine::content_hash;
use treadle_simulator::workload::AgentRun;

/// Steps after which predictions are compared.
pub(super) const AFTER: [usize; 6] = [0, 1, 2, 4, 8, 16];
/// The first of these are compared with the paper's: after 0, 1 and 2 steps.
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

/// What was predicted of a program after some steps; `None` where it had ended by then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Look {
    /// While its tool ran.
    pub(super) acting: Option<Prediction>,
    /// When that had returned.
    pub(super) returned: Option<Prediction>,
}

/// Predictions of each run, in the order of [`AFTER`].
pub(super) type Predictions = Vec<[Look; AFTER.len()]>;

/// Puts a rollout to a policy, all programs step by step at the same pace: first it is given the
/// programs that have ended with their last step, then asked about all others, while their tools run
/// and when these have returned. Programs come in no order, so that those of a group are met in different questions.
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
    let mut predictions = vec![[Look::default(); AFTER.len()]; runs.len()];
    let mut steps = 0;
    while !places.is_empty() {
        let (over, live): (Vec<usize>, _) = places
            .iter()
            .partition(|place| runs[**place].steps.len() <= steps);
        learn(policy, rollout, &over, extra)?;
        let look = AFTER.iter().position(|after| *after == steps);
        for returned in [false, true] {
            // Before the first step no tool was called.
            if returned && steps == 0 {
                continue;
            }
            for round in live.chunks(ROUND_MAX) {
                let given = ask(policy, rollout, round, steps, returned, extra)?;
                for (place, given) in round.iter().zip(given) {
                    let Some(look) = look else { break };
                    let look = &mut predictions[*place][look];
                    let told = if returned {
                        &mut look.returned
                    } else {
                        &mut look.acting
                    };
                    *told = Some(given);
                }
            }
        }
        places = live;
        steps += 1;
    }
    Ok(predictions)
}

/// What is predicted of some programs at one moment.
fn ask(
    policy: &mut impl PredictionPolicy,
    rollout: &Rollout,
    places: &[usize],
    steps: usize,
    returned: bool,
    extra: &[&str],
) -> Result<Vec<Prediction>, PolicyError> {
    let row = |place: &usize| {
        let observation = Observation::after(&rollout.runs[*place], steps, rollout.scores[*place]);
        if returned {
            observation.returned(&rollout.runs[*place])
        } else {
            observation
        }
    };
    let rows: Vec<Observation> = places.iter().map(row).collect();
    let given = policy.predict(&ObservationTable::new(&rows, &[], extra).live())?;
    let total = |(row, observation): (usize, &Observation)| {
        let done = observation.output_tokens as f64;
        Prediction {
            total: done + given.remaining_tokens[row],
            total_p90: done + given.remaining_tokens_p90[row],
        }
    };
    Ok(rows.iter().enumerate().map(total).collect())
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
            let observation = Observation::after(run, steps, rollout.scores[*place]);
            let returned = (steps > 0).then(|| observation.returned(run));
            for observation in [Some(observation), returned].into_iter().flatten() {
                remaining.push(observation.remaining(run));
                rows.push(observation);
            }
        }
        if rows.len() >= ROUND_MAX || count + 1 == over.len() {
            policy.learn(&ObservationTable::new(&rows, &remaining, extra).finished())?;
            rows.clear();
            remaining.clear();
        }
    }
    Ok(())
}
