//! Glue between the bindings of the world `prediction` and [`PredictionPolicy`].

use std::marker::PhantomData;

use super::plugin::Failure;
use super::{Exported, lent};
use crate::PredictionPolicy;

super::bindings!("guest-prediction", "treadle_plugin::guest::prediction::raw");

use raw::exports::treadle::policy::prediction_policy as world;

/// Exports `prediction-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + PredictionPolicy> world::Guest for Guest<P> {
    fn predict(given: world::LiveColumns) -> Result<world::Estimates, Failure> {
        let columns =
            lent!(LiveColumns of given { group, tokens, output_tokens, steps, tool_ms, extra });
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.predict(&columns)
        })
        .map(Into::into)
    }

    fn learn(given: world::FinishedColumns) -> Result<(), Failure> {
        let columns = lent!(FinishedColumns of given { group, tokens, output_tokens, steps, tool_ms, remaining_tokens, remaining_tool_ms, extra });
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.learn(&columns)
        })
    }
}

impl From<crate::Estimates> for world::Estimates {
    fn from(estimates: crate::Estimates) -> Self {
        Self {
            remaining_tokens: estimates.remaining_tokens,
            remaining_tokens_p90: estimates.remaining_tokens_p90,
            remaining_tool_s: estimates.remaining_tool_s,
        }
    }
}
