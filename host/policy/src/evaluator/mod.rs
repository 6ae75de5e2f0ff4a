//! The policy evaluator: calls policies synchronously for the driver, with a built-in default as
//! the fallback for every answer that a sandboxed policy fails to give.
//!
//! A question is divided among the policies bound for its programs ([`assignment`]), each evaluates
//! its rows ([`call`]), and their answers are merged ([`merge`]). Everything that changes a binding
//! is in [`change`].

mod answer;
mod arrange;
mod assignment;
mod bindings;
mod budget;
mod call;
mod change;
mod cost_columns;
mod merge;
mod placements;
mod rollouts;
mod rows;
mod shadow;
mod shape;
mod slot;
mod statistics;
#[cfg(test)]
mod tests;
mod trial;

pub use bindings::{EVERYONE, Scope};
pub use change::{BindingView, CanaryView, Change, Changed, Notice, NoticeKind, PolicyState};
pub use rows::Forecast;
pub use shadow::{Comparison, ShadowReport};
pub use slot::BoundPolicy;
pub use statistics::{LATENCY_BOUNDS_US, PolicyStatistics, VersionRow, VersionStatistics};
pub use treadle_core::bindings::ChangeError;
pub use treadle_model::Role;
pub use trial::{Spread, Trial, TrialLimits};

use crate::columns::{self, Programs, Workers};
use answer::{Scored, put_together};
use assignment::{Assignee, Assignment};
use bindings::Bindings;
use budget::Budget;
use call::{Native, PolicyCall, is_about_placed};
use cost_columns::CostColumns;
use merge::Share;
use rows::{Converted, only};
use shadow::Shadows;
use slot::PolicySlot;
use statistics::Versions;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use treadle_core::Core;
use treadle_core::programs::{Attribution, PolicyAnswer, ProgramColumns, Purpose, Question};
use treadle_model::{PolicyRef, ProgramId, World};
use treadle_policy_runtime::{BreakerLimits, PolicyFault, PolicyInstance};

/// When a policy is rolled back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluatorLimits {
    /// Limits on its faults.
    pub breaker: BreakerLimits,
    /// Limits on its regret, while it is a canary.
    pub trial: TrialLimits,
    /// Makes runs independent of how long policies take: a failed one is restarted by the next
    /// question instead of by another thread, and each question calls all of its policies.
    pub is_repeatable: bool,
}

/// An answer to a question of the core.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The policy that answered.
    pub policy: PolicyRef,
    /// The answer.
    pub answer: PolicyAnswer,
    /// Which other policies contributed.
    pub attribution: Attribution,
}

/// The bindings of the worlds that the driver asks, and the statistics of their calls.
pub struct PolicyEvaluator {
    bindings: Bindings,
    native: Native,
    limits: EvaluatorLimits,
    statistics: PolicyStatistics,
    versions: Versions,
    shadows: Shadows,
    forecasts: HashMap<ProgramId, Forecast>,
    /// Changes that the evaluator made by itself. Each question adds at most one per policy.
    notices: VecDeque<Notice>,
}

impl PolicyEvaluator {
    /// An evaluator with only the built-in defaults.
    pub fn new(limits: EvaluatorLimits) -> Self {
        Self {
            bindings: Bindings::default(),
            native: Native::default(),
            limits,
            statistics: PolicyStatistics::default(),
            versions: Versions::default(),
            shadows: Shadows::start(),
            forecasts: HashMap::new(),
            notices: VecDeque::new(),
        }
    }

    /// Statistics of all policies together.
    pub fn statistics(&self) -> &PolicyStatistics {
        &self.statistics
    }

    /// Statistics by version.
    pub fn version_rows(&self) -> Vec<VersionRow> {
        self.versions.rows()
    }

    /// Records the forecast for a program.
    pub fn expect(&mut self, program: ProgramId, forecast: Forecast) {
        self.forecasts.insert(program, forecast);
    }

    /// Drops a program that is over.
    pub fn forget(&mut self, program: ProgramId) {
        self.forecasts.remove(&program);
    }

    /// Answers a question at `now_ms` of the scheduler's clock.
    pub fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answer {
        let started = Instant::now();
        let programs = &question.programs;
        let answer = match question.purpose {
            Purpose::Migrate => self.migrate(core, programs, now_ms),
            Purpose::Preempt { worker } => self.preempt(core, worker, programs, now_ms),
            _ => self.rank(core, question, now_ms),
        };
        self.record_time(started);
        answer
    }

    /// Counts the time for an answer.
    fn record_time(&mut self, started: Instant) {
        let took_us = started.elapsed().as_micros() as u64;
        self.statistics.asked_us += took_us;
        self.statistics.slowest_us = self.statistics.slowest_us.max(took_us);
    }

    /// Gets scores and, if placement policies are asked too, workers.
    fn rank(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answer {
        let programs = &question.programs;
        let assignment = Assignment::of(&self.bindings, core, question.purpose, &programs.program);
        let (policies, scored) = self.evaluate_all(core, question, &assignment, now_ms);
        let mut answer = put_together(question, &assignment, policies, &scored);
        match question.purpose {
            Purpose::Restore => {
                self.add_forecasts(&mut answer);
                self.add_placements(core, &mut answer, programs, now_ms);
            }
            Purpose::Route { .. } => {
                self.add_forecasts(&mut answer);
                self.add_route(core, &mut answer, programs, now_ms);
            }
            _ => {}
        }
        answer
    }

    /// The assignees' names in the order of the assignment, and one score for each row.
    fn evaluate_all(
        &mut self,
        core: &Core,
        question: &Question,
        assignment: &Assignment,
        now_ms: u64,
    ) -> (Vec<PolicyRef>, Scored) {
        let (purpose, rows) = (question.purpose, &question.programs);
        if let [assignee] = assignment.assignees.as_slice() {
            let call = self.call_for(core, assignee, purpose, Cow::Borrowed(rows));
            let (policy, scores) = self.evaluate(core, assignee, call, now_ms);
            return (vec![policy], Scored::in_order_of(scores));
        }
        let (mut policies, mut shares) = (Vec::new(), Vec::new());
        let mut budget = Budget::default();
        for (index, assignee) in assignment.assignees.iter().enumerate() {
            let of_assignee = assignment.rows_of(index, rows.len());
            let programs = Cow::Owned(only(rows, &of_assignee));
            let call = self.call_for(core, assignee, purpose, programs);
            let tenant = assignee.scope.tenant_prefix();
            let (policy, scores) = if self.limits.is_repeatable || budget.allows(tenant) {
                let began = Instant::now();
                let evaluated = self.evaluate(core, assignee, call, now_ms);
                budget.spend(tenant, began.elapsed());
                evaluated
            } else {
                self.count_left_out(assignee);
                self.evaluate_natively(assignee, &call)
            };
            policies.push(policy);
            shares.push(Share {
                rows: of_assignee,
                scores,
            });
        }
        let mut scored = Scored::in_order_of(merge::by_row(rows.len(), &shares));
        // Weights are shares of memory and comparable among policies; the priority of a step is
        // compared with those of other questions.
        if matches!(purpose, Purpose::Pause { .. } | Purpose::Restore) {
            scored.rank = Some(merge::by_relative_rank(rows.len(), &shares));
        }
        (policies, scored)
    }

    fn call_for<'q>(
        &mut self,
        core: &Core,
        assignee: &Assignee,
        purpose: Purpose,
        programs: Cow<'q, ProgramColumns>,
    ) -> PolicyCall<'q> {
        let (facts, converted) = match assignee.world {
            World::Priority => (
                self.facts(core, &programs, &Workers::default()),
                Converted::default(),
            ),
            _ => (Programs::default(), Converted::of(purpose, &programs)),
        };
        let named = self.named_by(assignee);
        let binding = self
            .bindings
            .world_mut(assignee.world)
            .get_mut(&assignee.scope);
        let is_shown = !named.is_empty() || binding.is_some_and(|b| b.has_shadow);
        let is_retention = matches!(purpose, Purpose::Retain { .. });
        let needs_costs = assignee.world == World::Eviction && (is_shown || is_retention);
        let predicted = |program| self.forecast(program).map(|known| known.remaining_tokens);
        PolicyCall {
            world: assignee.world,
            purpose,
            facts,
            converted,
            cost_columns: needs_costs.then(|| CostColumns::of(&programs, predicted)),
            programs,
            named,
        }
    }

    /// False if the policy in an assignee's slot does not implement a function: leaving it to the
    /// default is then not a decision of the policy.
    fn describes(&mut self, assignee: &Assignee, function: &str) -> bool {
        let binding = self
            .bindings
            .world_mut(assignee.world)
            .get_mut(&assignee.scope);
        let slot = binding.and_then(|binding| binding.slot_mut(assignee.canary));
        let instance = slot.and_then(PolicySlot::instance);
        instance.is_none_or(|instance| instance.description().answers(function))
    }

    /// Which extra columns the policy in an assignee's slot gets.
    fn named_by(&mut self, assignee: &Assignee) -> Vec<usize> {
        let binding = self
            .bindings
            .world_mut(assignee.world)
            .get_mut(&assignee.scope);
        let slot = binding.and_then(|binding| binding.slot_mut(assignee.canary));
        slot.map_or_else(Vec::new, |slot| slot.extra.clone())
    }

    fn facts(&self, core: &Core, programs: &ProgramColumns, workers: &Workers) -> Programs {
        Programs::of(core, programs, workers, |program| self.forecast(program))
    }

    fn forecast(&self, program: ProgramId) -> Option<columns::Forecast> {
        let known = self.forecasts.get(&program);
        known.map(|forecast| forecast.in_columns())
    }

    /// One assignee's name and scores, or those of the built-in default instead.
    fn evaluate(
        &mut self,
        core: &Core,
        assignee: &Assignee,
        call: PolicyCall<'_>,
        now_ms: u64,
    ) -> (PolicyRef, Vec<f64>) {
        let asked = if call.is_retention() && !self.describes(assignee, "retain") {
            None
        } else {
            self.ask_slot(assignee, now_ms, call.programs.len(), |instance| {
                call.put_to(instance, &call.named, now_ms, None)
            })
        };
        let (policy, mut scores) = asked.unwrap_or_else(|| self.evaluate_natively(assignee, &call));
        let is_of_tenant = assignee.scope != Scope::Everyone;
        if call.asks_for_weights()
            && is_of_tenant
            && core.programs().estimates.jobs().are_of_several_tenants()
        {
            let least = call.put_to_native(&mut self.native);
            raise_to(&mut scores, &least);
        }
        let world = self.bindings.world_mut(assignee.world);
        let has_shadow = world.get_mut(&assignee.scope).is_some_and(|b| b.has_shadow);
        if has_shadow && !assignee.canary {
            self.shadows.show(
                assignee.world,
                assignee.scope.clone(),
                call.into_owned(),
                &scores,
                now_ms,
            );
        }
        (policy, scores)
    }

    /// Counts that a policy was not called because no time was left for it.
    fn count_left_out(&mut self, assignee: &Assignee) {
        let world = self.bindings.world_mut(assignee.world);
        let binding = world.get_mut(&assignee.scope);
        let slot = binding.and_then(|binding| binding.slot_mut(assignee.canary));
        if let Some(slot) = slot {
            let tenant = assignee.scope.tenant_prefix();
            let version = self.versions.of(assignee.world, &slot.policy, tenant);
            version.fallbacks += 1;
            self.statistics.fallbacks += 1;
        }
    }

    /// The built-in default's name and scores.
    fn evaluate_natively(
        &mut self,
        assignee: &Assignee,
        call: &PolicyCall<'_>,
    ) -> (PolicyRef, Vec<f64>) {
        let policy = native_policy_for(assignee.world, call.purpose);
        (policy, call.put_to_native(&mut self.native))
    }

    /// Calls the policy bound for a job. `None` if the built-in default has to answer.
    pub fn ask_bound<T>(
        &mut self,
        world: World,
        job: &str,
        rows: usize,
        now_ms: u64,
        ask: impl FnOnce(&mut PolicyInstance) -> Result<T, PolicyFault>,
    ) -> Option<(PolicyRef, T)> {
        let (scope, _) = self.bindings.world(world).of_job(job);
        let assignee = Assignee {
            world,
            scope,
            canary: false,
        };
        self.ask_slot(&assignee, now_ms, rows, ask)
    }

    /// Which extra columns the policy bound for a job gets.
    pub fn extra_of(&mut self, world: World, job: &str) -> Vec<usize> {
        let (scope, _) = self.bindings.world(world).of_job(job);
        self.named_by(&Assignee {
            world,
            scope,
            canary: false,
        })
    }

    /// Calls the policy in an assignee's slot, and counts the outcome. `None` if the slot is empty,
    /// the policy may not be called now, or it gave no answer.
    fn ask_slot<T>(
        &mut self,
        assignee: &Assignee,
        now_ms: u64,
        rows: usize,
        ask: impl FnOnce(&mut PolicyInstance) -> Result<T, PolicyFault>,
    ) -> Option<(PolicyRef, T)> {
        let binding = self
            .bindings
            .world_mut(assignee.world)
            .get_mut(&assignee.scope)?;
        let slot = binding.slot_mut(assignee.canary)?;
        let policy = slot.policy.clone();
        let tenant = assignee.scope.tenant_prefix();
        let version = self.versions.of(assignee.world, &policy, tenant);
        let Some(instance) = slot.askable(now_ms) else {
            version.fallbacks += 1;
            self.statistics.fallbacks += 1;
            return None;
        };
        let (started, fuel) = (Instant::now(), instance.fuel_used().unwrap_or(0));
        let answer = ask(instance);
        version.record_call(rows, started.elapsed());
        let fuel_after = instance.fuel_used().unwrap_or(0);
        self.statistics.fuel += fuel_after.saturating_sub(fuel);
        version.memory_bytes = instance.memory_bytes();
        version.restarts = instance.restarts();
        if !self.limits.is_repeatable {
            slot.look_after(&self.shadows);
        }
        let fault = match answer {
            Ok(answer) => {
                slot.record_success(now_ms);
                self.statistics.answered += 1;
                return Some((policy, answer));
            }
            Err(fault) => fault,
        };
        version.fallbacks += 1;
        self.statistics.fallbacks += 1;
        if !fault.is_policys_fault() {
            version.not_supported += 1;
            return None;
        }
        version.record_fault(&fault);
        let must_go = slot.record_fault(now_ms);
        self.statistics.faults += 1;
        self.statistics.latest_fault = Some(fault.to_string());
        tracing::warn!(%policy, %fault, "the policy failed; the built-in default answers");
        if must_go {
            self.give_up(assignee, &format!("repeated faults, the latest: {fault}"));
        }
        None
    }
}

/// If tenants share workers, the policy of one must not make its programs count for less memory
/// than the built-in default would: others would have to leave instead.
fn raise_to(weights: &mut [f64], least: &[f64]) {
    for (weight, least) in weights.iter_mut().zip(least) {
        *weight = weight.max(*least);
    }
}

impl Default for PolicyEvaluator {
    fn default() -> Self {
        Self::new(EvaluatorLimits::default())
    }
}

/// True if scheduling waits for this world's answers.
pub fn is_asked_in_place(world: World) -> bool {
    !matches!(world, World::Prediction | World::Reward)
}

/// The name of a world's built-in default.
pub fn native_policy(world: World) -> PolicyRef {
    let name = match world {
        World::Eviction => "thunderagent-eviction",
        World::Prediction => "default-prediction",
        World::Priority => "default-priority",
        // Without a chosen worker the core decides by cache and room.
        World::Placement => "core-placement",
        World::Allocation => "default-allocation",
        World::Reward => "default-reward",
        // Groups sample what they train.
        World::Shaping => "core-shaping",
    };
    PolicyRef(format!("{name}@{}+native", env!("CARGO_PKG_VERSION")))
}

/// The built-in default that replaces an assignee.
fn native_policy_for(world: World, purpose: Purpose) -> PolicyRef {
    if is_about_placed(purpose) && world == World::Priority {
        return PolicyRef(format!(
            "equal-priority@{}+native",
            env!("CARGO_PKG_VERSION")
        ));
    }
    native_policy(world)
}
