//! Glue between the bindings of the world `prediction` and [`PredictionPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{FinishedColumns, LiveColumns, PredictionPolicy};

super::bindings!("guest-prediction", "treadle_plugin::guest::prediction::raw");

use raw::exports::treadle::policy::prediction_policy as world;

/// Exports `prediction-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + PredictionPolicy> world::Guest for Guest<P> {
    fn predict(
        group: Vec<u64>,
        tokens: Vec<u64>,
        output_tokens: Vec<u64>,
        steps: Vec<u32>,
        tool_ms: Vec<u64>,
        extra: Vec<f32>,
    ) -> Result<world::Estimates, Failure> {
        let columns = LiveColumns {
            group: &group,
            tokens: &tokens,
            output_tokens: &output_tokens,
            steps: &steps,
            tool_ms: &tool_ms,
            extra: &extra,
        };
        P::ask(|policy| policy.predict(&columns)).map(Into::into)
    }

    fn learn(
        group: Vec<u64>,
        tokens: Vec<u64>,
        output_tokens: Vec<u64>,
        steps: Vec<u32>,
        tool_ms: Vec<u64>,
        remaining_tokens: Vec<u64>,
        remaining_tool_ms: Vec<u64>,
        extra: Vec<f32>,
    ) -> Result<(), Failure> {
        let columns = FinishedColumns {
            group: &group,
            tokens: &tokens,
            output_tokens: &output_tokens,
            steps: &steps,
            tool_ms: &tool_ms,
            remaining_tokens: &remaining_tokens,
            remaining_tool_ms: &remaining_tool_ms,
            extra: &extra,
        };
        P::ask(|policy| policy.learn(&columns))
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
