//! Glue between the bindings of the world `priority` and [`PriorityPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{PreemptColumns, PriorityPolicy, QueueColumns};

super::bindings!("guest-priority", "treadle_plugin::guest::priority::raw");

use raw::exports::treadle::policy::priority_policy as world;

/// Exports `priority-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + PriorityPolicy> world::Guest for Guest<P> {
    fn score(
        tokens: Vec<u64>,
        output_tokens: Vec<u64>,
        steps: Vec<u32>,
        waited_ms: Vec<u64>,
        remaining_tokens: Vec<f64>,
        remaining_tool_s: Vec<f64>,
        extra: Vec<f32>,
    ) -> Result<Vec<f64>, Failure> {
        let columns = QueueColumns {
            tokens: &tokens,
            output_tokens: &output_tokens,
            steps: &steps,
            waited_ms: &waited_ms,
            remaining_tokens: &remaining_tokens,
            remaining_tool_s: &remaining_tool_s,
            extra: &extra,
        };
        P::ask(|policy| policy.score(&columns))
    }

    fn preempt(
        running_score: Vec<f64>,
        running_ms: Vec<u64>,
        waiting_score: Vec<f64>,
    ) -> Result<Vec<u8>, Failure> {
        let columns = PreemptColumns {
            running_score: &running_score,
            running_ms: &running_ms,
            waiting_score: &waiting_score,
        };
        P::ask(|policy| policy.preempt(&columns))
    }
}
