//! Calls about some programs, to either build of a policy: a sandboxed instance or the built-in
//! default.

use super::cost_columns::CostColumns;
use super::rows::Converted;
use crate::columns::Programs;
use default_priority::DefaultPriority;
use std::borrow::Cow;
use thunderagent_eviction::ThunderAgentEviction;
use treadle_core::programs::{ProgramColumns, Purpose};
use treadle_model::World;
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, PolicyError, PriorityPolicy, RetentionColumns,
    WaitingColumns,
};
use treadle_policy_runtime::{CallContext, PolicyFault, PolicyInstance};

/// A question about some programs. Its answer has a number for each: a score, a weight, or the code
/// of a cache action.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PolicyCall<'q> {
    /// The world that is asked.
    pub(super) world: World,
    /// The kind of the question.
    pub(super) purpose: Purpose,
    /// The programs.
    pub(super) programs: Cow<'q, ProgramColumns>,
    /// Further columns for eviction policies, in the contract's units.
    pub(super) converted: Converted,
    /// Further columns for priority policies.
    pub(super) facts: Programs,
    /// Cost estimates for eviction policies.
    pub(super) cost_columns: Option<CostColumns>,
    /// Which extra columns the assignee gets, as indices into
    /// [`COST_COLUMNS`](treadle_policy_runtime::COST_COLUMNS).
    pub(super) named: Vec<usize>,
}

impl PolicyCall<'_> {
    /// An owned copy of the call, which outlives the question.
    pub(super) fn into_owned(self) -> PolicyCall<'static> {
        PolicyCall {
            programs: Cow::Owned(self.programs.into_owned()),
            ..self
        }
    }

    /// The called function, as named in the contract.
    pub(super) fn name(&self) -> &'static str {
        match (self.world, self.purpose) {
            (World::Priority, _) => "score",
            (_, Purpose::Weigh { .. }) => "weigh",
            (_, Purpose::Pause { .. }) => "pause-order",
            (_, Purpose::Retain { .. }) => "retain",
            _ => "restore-order",
        }
    }

    /// True if the answer is weights, false if it is an order.
    pub(super) fn asks_for_weights(&self) -> bool {
        matches!(self.purpose, Purpose::Weigh { .. })
    }

    /// True if the question is about cache actions.
    pub(super) fn is_retention(&self) -> bool {
        matches!(self.purpose, Purpose::Retain { .. })
    }

    /// Calls a sandboxed policy with the extra columns `named`. `deadline_ms` replaces the world's
    /// own.
    pub(super) fn put_to(
        &self,
        instance: &mut PolicyInstance,
        named: &[usize],
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
        let cost_columns = self.cost_columns.as_ref();
        let extra = cost_columns.map_or_else(Vec::new, |cost_columns| cost_columns.extra(named));
        match self.purpose {
            Purpose::Weigh { .. } => instance.weigh(&context, &self.acting(&extra)),
            Purpose::Pause { .. } => instance.pause_order(&context, &self.active(&extra)),
            Purpose::Restore => instance.restore_order(&context, &self.waiting(&extra)),
            Purpose::Retain {
                capacity_tokens,
                free_tokens,
                wanted_tokens,
                ..
            } => {
                let cost_columns = cost_columns.ok_or(PolicyFault::NotSupported)?;
                let columns = RetentionColumns {
                    capacity_tokens,
                    free_tokens,
                    wanted_tokens,
                    ..self.retained(cost_columns, &extra)
                };
                let actions = instance.retain(&context, &columns)?;
                let code = |action| f64::from(action as u8);
                Ok(actions.into_iter().map(code).collect())
            }
            Purpose::Route { .. } | Purpose::Migrate | Purpose::Preempt { .. } => {
                Err(PolicyFault::NotSupported)
            }
        }
    }

    /// Calls a shadow, which has a longer deadline.
    pub(super) fn put_to_shadow(
        &self,
        instance: &mut PolicyInstance,
        named: &[usize],
        now_ms: u64,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.put_to(instance, named, now_ms, Some(SHADOW_DEADLINE_MS))
    }

    /// Calls the built-in defaults. They give all steps equal urgency, so engines serve them in
    /// order of arrival. Caches stay: the default sends programs away by their weights.
    pub(super) fn put_to_native(&self, native: &mut Native) -> Vec<f64> {
        if is_about_placed(self.purpose) || self.is_retention() {
            return vec![0.0; self.programs.len()];
        }
        let scores = match (self.world, self.purpose) {
            (World::Priority, _) => native.priority.score(&self.facts.queue()),
            (_, Purpose::Weigh { .. }) => native.eviction.weigh(&self.acting(&[])),
            (_, Purpose::Pause { .. }) => native.eviction.pause_order(&self.active(&[])),
            _ => native.eviction.restore_order(&self.waiting(&[])),
        };
        // The defaults only refuse columns of unequal length, and these come from one table.
        scores.unwrap_or_else(|_: PolicyError| vec![0.0; self.programs.len()])
    }

    fn acting<'a>(&'a self, extra: &'a [f32]) -> ActingColumns<'a> {
        ActingColumns {
            tokens: &self.programs.tokens,
            phase_ms: &self.converted.phase_ms,
            extra,
        }
    }

    fn active<'a>(&'a self, extra: &'a [f32]) -> ActiveColumns<'a> {
        ActiveColumns {
            tokens: &self.programs.tokens,
            phase: &self.converted.phase,
            phase_ms: &self.converted.phase_ms,
            steps: &self.programs.steps,
            extra,
        }
    }

    fn waiting<'a>(&'a self, extra: &'a [f32]) -> WaitingColumns<'a> {
        WaitingColumns {
            tokens: &self.programs.tokens,
            phase: &self.converted.phase,
            waited_ms: &self.converted.waited_ms,
            steps: &self.programs.steps,
            extra,
        }
    }

    fn retained<'a>(
        &'a self,
        cost_columns: &'a CostColumns,
        extra: &'a [f32],
    ) -> RetentionColumns<'a> {
        RetentionColumns {
            tokens: &self.programs.tokens,
            phase_ms: &self.converted.phase_ms,
            idle_ms: &cost_columns.idle_ms,
            soonest_ms: &cost_columns.soonest_ms,
            back_ms: &cost_columns.back_ms,
            moved_ms: &cost_columns.moved_ms,
            prefill_ms: &cost_columns.prefill_ms,
            steps: &self.programs.steps,
            extra,
            ..RetentionColumns::default()
        }
    }
}

/// True for questions about placed programs whose steps a policy ranks.
pub(super) const fn is_about_placed(purpose: Purpose) -> bool {
    use Purpose::{Migrate, Preempt, Route};
    matches!(purpose, Route { .. } | Migrate | Preempt { .. })
}

/// Time limit of a shadow's answer.
const SHADOW_DEADLINE_MS: u64 = 100;

/// The built-in defaults of the worlds that the driver asks.
#[derive(Default)]
pub(super) struct Native {
    eviction: ThunderAgentEviction,
    priority: DefaultPriority,
}
