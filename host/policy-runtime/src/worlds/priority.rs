//! The world `priority`: which goes first among the programs that wait for placement, and whether a
//! running step is preempted.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{calls, record, world};
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

calls! { PriorityInstance, treadle_policy_priority_policy:
    /// A score for each waiting program; the highest goes first.
    score(programs: QueueColumns) -> Vec<f64> {
        admit "score" [programs.len()] |extra| programs.check(extra);
        ask Hot call_score(record!(given::QueueColumns of programs {
            tokens, output_tokens, steps, waited_ms, remaining_tokens, remaining_tool_s, extra,
        }));
        check |scores| answers::finite("scores", scores, programs.len());
    }

    /// For each running step whether it is preempted for a waiting one; at most as many as wait.
    preempt(steps: PreemptColumns) -> Vec<bool> {
        admit "preempt" [steps.len(), steps.waiting_score.len()] |_| steps.check();
        ask Hot call_preempt(record!(given::PreemptColumns of steps {
            running_score, running_ms, waiting_score,
        }));
        check |gives_way| check_preempt(gives_way, steps);
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
