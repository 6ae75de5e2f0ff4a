//! The world `priority`: which goes first among the programs that wait for placement, and whether a
//! running step is preempted.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{record, world};
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

use raw::exports::treadle::policy::priority_policy as given;

impl PriorityInstance {
    /// A score for each waiting program; the highest goes first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn score(
        &mut self,
        context: &CallContext,
        programs: &QueueColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit("score", &[programs.len()], |extra| programs.check(extra))?;
        let columns = record!(given::QueueColumns of programs {
            tokens, output_tokens, steps, waited_ms, remaining_tokens, remaining_tool_s, extra,
        });
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_priority_policy()
                    .call_score(store, columns)
            },
            |scores| answers::finite("scores", scores, programs.len()),
        )
    }

    /// For each running step whether it is preempted for a waiting one; at most as many as wait.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn preempt(
        &mut self,
        context: &CallContext,
        steps: &PreemptColumns<'_>,
    ) -> Result<Vec<bool>, PolicyFault> {
        self.0
            .admit("preempt", &[steps.len(), steps.waiting_score.len()], |_| {
                steps.check()
            })?;
        let columns = record!(given::PreemptColumns of steps {
            running_score, running_ms, waiting_score,
        });
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_priority_policy()
                    .call_preempt(store, columns)
            },
            |gives_way| check_preempt(gives_way, steps),
        )
    }
}

fn check_preempt(gives_way: &[bool], steps: &PreemptColumns<'_>) -> Check {
    answers::length("preempt", gives_way.len(), steps.len())?;
    let giving = gives_way.iter().filter(|gives_way| **gives_way).count();
    let waiting = steps.waiting_score.len();
    if giving > waiting {
        return Err(format!(
            "preempt: {giving} steps to preempt, expected at most the {waiting} that wait"
        ));
    }
    Ok(())
}
