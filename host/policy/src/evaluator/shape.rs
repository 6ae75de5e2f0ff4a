//! How many members the groups of a training run sample, which are cut short and which are trained:
//! by the policy that is bound for the job, without canary or shadow.

use super::PolicyEvaluator;
use super::assignment::Assignee;
use crate::shaping::{Shape, ask};
use std::time::Instant;
use treadle_core::training::{ShapingAnswer, ShapingPurpose, ShapingQuestion};
use treadle_model::{PolicyRef, World};
use treadle_policy_runtime::{
    CallContext, GroupColumns, MemberColumns, PolicyFault, ShapingInstance, Verdict,
};

impl PolicyEvaluator {
    /// Calls the policy bound for the job. `None` if it does not implement the function, or gave no
    /// answer: then the core decides.
    pub fn shape(
        &mut self,
        question: &ShapingQuestion,
        now_ms: u64,
    ) -> Option<(PolicyRef, ShapingAnswer)> {
        let started = Instant::now();
        let (scope, _) = self.bindings.world(World::Shaping).of_job(&question.job);
        let assignee = Assignee {
            world: World::Shaping,
            scope,
            canary: false,
        };
        let function = match question.purpose {
            ShapingPurpose::Size => "size",
            ShapingPurpose::Curtail => "curtail",
            ShapingPurpose::Select => "select",
        };
        if !self.describes(&assignee, function) {
            return None;
        }
        let rows = question
            .groups
            .key
            .len()
            .max(question.members.program.len());
        let asked = self.ask_slot(&assignee, now_ms, rows, |instance| {
            let instance = instance.as_shaping_mut();
            let mut sandboxed = Sandboxed {
                instance: instance.ok_or(PolicyFault::NotSupported)?,
                context: CallContext {
                    seed: now_ms,
                    ..CallContext::at(now_ms)
                },
            };
            ask(&mut sandboxed, question)
        });
        self.record_time(started);
        asked
    }
}

/// A policy in its sandbox.
struct Sandboxed<'i> {
    instance: &'i mut ShapingInstance,
    context: CallContext,
}

impl Shape for Sandboxed<'_> {
    type Error = PolicyFault;

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyFault> {
        self.instance.size(&self.context, groups)
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyFault> {
        self.instance.curtail(&self.context, members)
    }

    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyFault> {
        self.instance.select(&self.context, members)
    }
}
