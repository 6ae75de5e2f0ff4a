//! Glue between the bindings of the world `priority` and [`PriorityPolicy`].

use std::marker::PhantomData;

use super::plugin::Failure;
use super::{Exported, lent};
use crate::PriorityPolicy;

super::bindings!("guest-priority", "treadle_plugin::guest::priority::raw");

use raw::exports::treadle::policy::priority_policy as world;

/// Exports `priority-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + PriorityPolicy> world::Guest for Guest<P> {
    fn score(given: world::QueueColumns) -> Result<Vec<f64>, Failure> {
        let columns = lent!(QueueColumns of given { tokens, output_tokens, steps, waited_ms, remaining_tokens, remaining_tool_s, extra });
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.score(&columns)
        })
    }

    fn preempt(given: world::PreemptColumns) -> Result<Vec<bool>, Failure> {
        let columns = lent!(PreemptColumns of given { running_score, running_ms, waiting_score });
        P::ask(columns.check(), |policy| policy.preempt(&columns))
    }
}
