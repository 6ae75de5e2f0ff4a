//! The world `priority`: which goes first among the programs that wait for placement, and whether a
//! running step is preempted.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::world;
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Check, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{PreemptColumns, QueueColumns};

world! {
    /// A running policy of the world `priority`.
    PriorityInstance: "priority", Priority, PriorityPre
}

impl PriorityInstance {
    /// For each waiting program its score; the highest goes first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn score(
        &mut self,
        context: &CallContext,
        programs: &QueueColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit(&[programs.len()], programs.extra.len(), |extra| {
                programs.check(extra)
            })?;
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest.treadle_policy_priority_policy().call_score(
                    store,
                    programs.tokens,
                    programs.output_tokens,
                    programs.steps,
                    programs.waited_ms,
                    programs.remaining_tokens,
                    programs.remaining_tool_s,
                    programs.extra,
                )
            },
            |scores| answers::finite("scores", scores, programs.len()),
        )
    }

    /// For each running step 1 if it is preempted for a waiting one, else 0; at most as many as are
    /// waiting.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn preempt(
        &mut self,
        context: &CallContext,
        steps: &PreemptColumns<'_>,
    ) -> Result<Vec<u8>, PolicyFault> {
        self.0
            .admit(&[steps.len(), steps.waiting_score.len()], 0, |_| {
                steps.check()
            })?;
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest.treadle_policy_priority_policy().call_preempt(
                    store,
                    steps.running_score,
                    steps.running_ms,
                    steps.waiting_score,
                )
            },
            |gives_way| check_preempt(gives_way, steps),
        )
    }
}

fn check_preempt(gives_way: &[u8], steps: &PreemptColumns<'_>) -> Check {
    answers::each("preempt", gives_way, steps.len(), "0 or 1", |_, value| {
        value <= 1
    })?;
    let giving: usize = gives_way.iter().map(|&value| usize::from(value)).sum();
    let waiting = steps.waiting_score.len();
    if giving > waiting {
        return Err(format!(
            "preempt: {giving} steps to preempt, expected at most the {waiting} that are waited for"
        ));
    }
    Ok(())
}
