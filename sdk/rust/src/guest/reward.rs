//! Glue between the bindings of the world `reward` and [`RewardPolicy`].

use std::marker::PhantomData;

use super::plugin::Failure;
use super::{Exported, lent};
use crate::RewardPolicy;

super::bindings!("guest-reward", "treadle_plugin::guest::reward::raw");

use raw::exports::treadle::policy::reward_policy as world;

/// Exports `reward-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + RewardPolicy> world::Guest for Guest<P> {
    fn score(given: world::AnswerColumns) -> Result<world::Scores, Failure> {
        let columns =
            lent!(AnswerColumns of given { answer, reference, output_tokens, steps, extra });
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.score(&columns)
        })
        .map(Into::into)
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
