//! Which waiting actions start, and with which amount of their key resource. All jobs use the same
//! pools, so the policy bound for everyone decides, without canary or shadow.

use super::PolicyEvaluator;
use super::assignment::Assignee;
use super::bindings::Scope;
use std::iter::zip;
use std::time::Instant;
use treadle_core::actions::{ElasticAnswer, ElasticQuestion};
use treadle_model::{PolicyRef, World};
use treadle_policy_runtime::{
    ActionColumns, CallContext, PolicyFault, PolicyInstance, PoolColumns, RunningColumns,
};

impl PolicyEvaluator {
    /// Calls the bound policy. `None` if no bound policy arranges, or it gave no answer: then the
    /// candidates start with their minimum.
    pub fn arrange(
        &mut self,
        question: &ElasticQuestion,
        now_ms: u64,
    ) -> Option<(PolicyRef, ElasticAnswer)> {
        let started = Instant::now();
        let everyone = Assignee {
            world: World::Allocation,
            scope: Scope::Everyone,
            canary: false,
        };
        if !self.describes(&everyone, "arrange") {
            return None;
        }
        let rows = question.action.len();
        let asked = self.ask_slot(&everyone, now_ms, rows, |instance| {
            put_to(instance, question, now_ms)
        });
        self.record_time(started);
        let (policy, chosen) = asked?;
        Some((policy, units_of(question, &chosen)))
    }
}

/// For each row the option with which it starts, or -1 to let it wait.
fn put_to(
    instance: &mut PolicyInstance,
    question: &ElasticQuestion,
    now_ms: u64,
) -> Result<Vec<i32>, PolicyFault> {
    let context = CallContext {
        seed: now_ms,
        ..CallContext::at(now_ms)
    };
    let option_us: Vec<f64> = question.option_us.iter().map(|us| *us as f64).collect();
    let loads = question.option_load_us.iter();
    let option_load_us: Vec<f64> = loads.map(|us| *us as f64).collect();
    let columns = ActionColumns {
        pool: &question.pool,
        candidate: &question.candidate,
        waited_us: &question.waited_us,
        option_start: &question.option_start,
        option_units: &question.option_units,
        option_us: &option_us,
        option_load_us: &option_load_us,
        pools: PoolColumns {
            free_units: &question.free_units,
            chunked: &question.chunked,
            free_chunks: &question.free_chunks,
        },
        running: RunningColumns {
            pool: &question.running_pool,
            units: &question.running_units,
            left_us: &question.running_left_us,
        },
        extra: &[],
    };
    let instance = instance.as_allocation_mut();
    instance
        .ok_or(PolicyFault::NotSupported)?
        .arrange(&context, &columns)
}

fn units_of(question: &ElasticQuestion, chosen: &[i32]) -> ElasticAnswer {
    let rows = zip(&question.action, zip(&question.option_start, chosen));
    let start = rows.filter_map(|(action, (first, option))| {
        let option = *first as usize + usize::try_from(*option).ok()?;
        Some((*action, *question.option_units.get(option)?))
    });
    ElasticAnswer {
        start: start.collect(),
    }
}
