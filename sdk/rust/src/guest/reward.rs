//! Glue between the bindings of the world `reward` and [`RewardPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{AnswerColumns, CandidateColumns, RewardPolicy};

super::bindings!("guest-reward", "treadle_plugin::guest::reward::raw");

use raw::exports::treadle::policy::reward_policy as world;

/// Exports `reward-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + RewardPolicy> world::Guest for Guest<P> {
    fn score(
        answer: Vec<String>,
        reference: Vec<String>,
        output_tokens: Vec<u64>,
        steps: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<world::Scores, Failure> {
        let columns = AnswerColumns {
            answer: &answer,
            reference: &reference,
            output_tokens: &output_tokens,
            steps: &steps,
            extra: &extra,
        };
        P::ask(|policy| policy.score(&columns)).map(Into::into)
    }

    fn select(
        group: Vec<u64>,
        reward: Vec<f64>,
        staleness: Vec<u32>,
        output_tokens: Vec<u64>,
        wanted: u32,
        extra: Vec<f32>,
    ) -> Result<Vec<u32>, Failure> {
        let columns = CandidateColumns {
            group: &group,
            reward: &reward,
            staleness: &staleness,
            output_tokens: &output_tokens,
            wanted,
            extra: &extra,
        };
        P::ask(|policy| policy.select(&columns))
    }
}

impl From<crate::Scores> for world::Scores {
    fn from(scores: crate::Scores) -> Self {
        Self {
            totals: scores.totals,
            part_names: scores.part_names,
            parts: scores.parts,
        }
    }
}
