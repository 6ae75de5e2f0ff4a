//! What a policy is asked about some programs, and putting it to one of either
//! build: a sandboxed instance or the built-in default.

use super::rows::Rows;
use default_priority::DefaultPriority;
use thunderagent_eviction::ThunderAgentEviction;
use treadle_core::Purpose;
use treadle_model::World;
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, PolicyError, PriorityPolicy, WaitingColumns,
};
use treadle_policy_runtime::{CallContext, PolicyFault, PolicyInstance};
use treadle_simulator::rollout::columns::Programs;

/// A question for scores of some programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inquiry {
    /// Which world is asked.
    pub(super) world: World,
    /// What is asked.
    pub(super) purpose: Purpose,
    /// The programs.
    pub(super) rows: Rows,
    /// What priority policies are told beside.
    pub(super) facts: Programs,
}

impl Inquiry {
    /// The function that is called, as the contract names it.
    pub(super) fn name(&self) -> &'static str {
        match (self.world, self.purpose) {
            (World::Priority, _) => "score",
            (_, Purpose::Weigh { .. }) => "weigh",
            (_, Purpose::Pause { .. }) => "pause-order",
            _ => "restore-order",
        }
    }

    /// True if weights are asked for, false if an order is.
    pub(super) fn is_weighing(&self) -> bool {
        matches!(self.purpose, Purpose::Weigh { .. })
    }

    /// Asks a sandboxed policy. `deadline_ms` replaces the world's own.
    pub(super) fn put_to(
        &self,
        instance: &mut PolicyInstance,
        now_ms: u64,
        deadline_ms: Option<u64>,
    ) -> Result<Vec<f64>, PolicyFault> {
        let context = CallContext {
            now_ms,
            seed: now_ms,
            deadline_ms,
        };
        if self.world == World::Priority {
            let instance = instance.as_priority_mut();
            return instance
                .ok_or(PolicyFault::NotSupported)?
                .score(&context, &self.facts.queue());
        }
        let instance = instance.as_eviction_mut();
        let instance = instance.ok_or(PolicyFault::NotSupported)?;
        match self.purpose {
            Purpose::Weigh { .. } => instance.weigh(&context, &self.acting()),
            Purpose::Pause { .. } => instance.pause_order(&context, &self.active()),
            Purpose::Restore => instance.restore_order(&context, &self.waiting()),
            Purpose::Retain { .. }
            | Purpose::Assign
            | Purpose::Route { .. }
            | Purpose::Migrate
            | Purpose::Preempt { .. } => Err(PolicyFault::NotSupported),
        }
    }

    /// Asks a shadow, which has time.
    pub(super) fn put_to_shadow(
        &self,
        instance: &mut PolicyInstance,
        now_ms: u64,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.put_to(instance, now_ms, Some(SHADOW_DEADLINE_MS))
    }

    /// Asks the built-in defaults. In a rollout they find all steps equally
    /// urgent: engines then serve them as they come.
    pub(super) fn put_to_native(&self, native: &mut Native) -> Vec<f64> {
        if is_of_rollouts(self.purpose) {
            return vec![0.0; self.rows.len()];
        }
        let scores = match (self.world, self.purpose) {
            (World::Priority, _) => native.priority.score(&self.facts.queue()),
            (_, Purpose::Weigh { .. }) => native.eviction.weigh(&self.acting()),
            (_, Purpose::Pause { .. }) => native.eviction.pause_order(&self.active()),
            _ => native.eviction.restore_order(&self.waiting()),
        };
        // The defaults refuse nothing but columns of unequal length, and these
        // come from one table.
        scores.unwrap_or_else(|_: PolicyError| vec![0.0; self.rows.len()])
    }

    fn acting(&self) -> ActingColumns<'_> {
        ActingColumns {
            tokens: &self.rows.tokens,
            phase_ms: &self.rows.phase_ms,
            extra: &[],
        }
    }

    fn active(&self) -> ActiveColumns<'_> {
        ActiveColumns {
            tokens: &self.rows.tokens,
            acting: &self.rows.acting,
            phase_ms: &self.rows.phase_ms,
            steps: &self.rows.steps,
            extra: &[],
        }
    }

    fn waiting(&self) -> WaitingColumns<'_> {
        WaitingColumns {
            tokens: &self.rows.tokens,
            reasoning: &self.rows.reasoning,
            waited_ms: &self.rows.waited_ms,
            steps: &self.rows.steps,
            extra: &[],
        }
    }
}

/// True for what only rollouts ask.
pub(super) const fn is_of_rollouts(purpose: Purpose) -> bool {
    use Purpose::{Assign, Migrate, Preempt, Route};
    matches!(purpose, Assign | Route { .. } | Migrate | Preempt { .. })
}

/// Time that a shadow has for an answer.
const SHADOW_DEADLINE_MS: u64 = 100;

/// The built-in defaults of the worlds that are asked in place.
#[derive(Default)]
pub(super) struct Native {
    eviction: ThunderAgentEviction,
    priority: DefaultPriority,
}
