//! Policies as the driver asks them: in place, with a built-in default behind
//! every answer that a sandboxed policy fails to give.

use std::time::Instant;
use treadle_core::{Purpose, Question, Verdict};
use treadle_model::PolicyRef;
use treadle_policy_runtime::{
    ActingColumns, ActiveColumns, Breaker, BreakerLimits, BreakerState, CallContext, PolicyFault,
    PolicyInstance, WaitingColumns,
};
use treadle_simulator::native::{EvictionColumns, NativeEviction, verdict};

/// An uploaded policy, ready to be asked.
pub struct BoundPolicy {
    /// Its name, version and digest.
    pub policy: PolicyRef,
    /// Its running instance.
    pub instance: PolicyInstance,
}

/// What happened to questions so far.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PolicyStatistics {
    /// Questions answered by the bound policy.
    pub answered: u64,
    /// Questions that the built-in default had to answer.
    pub fallbacks: u64,
    /// Faults of the bound policy.
    pub faults: u64,
    /// The latest fault, for people.
    pub latest_fault: Option<String>,
    /// Time spent on answers, in microseconds.
    pub asked_us: u64,
    /// The slowest answer, in microseconds.
    pub slowest_us: u64,
    /// Times that another policy was bound.
    pub swaps: u64,
    /// Times that a binding was given up after repeated faults.
    pub rollbacks: u64,
}

/// The bindings of the eviction world: one active policy over a native default.
pub struct PolicyDesk {
    native: NativeEviction,
    native_ref: PolicyRef,
    bound: Option<BoundPolicy>,
    previous: Option<BoundPolicy>,
    breaker: Breaker,
    breaker_limits: BreakerLimits,
    statistics: PolicyStatistics,
}

impl PolicyDesk {
    /// A desk at which only the native default sits.
    pub fn new(breaker_limits: BreakerLimits) -> Self {
        Self {
            breaker: Breaker::new(breaker_limits.clone()),
            breaker_limits,
            native: NativeEviction::default(),
            native_ref: PolicyRef(
                concat!(
                    "thunderagent-eviction@",
                    env!("CARGO_PKG_VERSION"),
                    "+native"
                )
                .into(),
            ),
            bound: None,
            previous: None,
            statistics: PolicyStatistics::default(),
        }
    }

    /// Binds a policy from the next question on; `None` is the native default.
    pub fn bind(&mut self, policy: Option<BoundPolicy>) {
        self.previous = std::mem::replace(&mut self.bound, policy);
        self.breaker = Breaker::new(self.breaker_limits.clone());
        self.statistics.swaps += 1;
    }

    /// The policy that is asked at present.
    pub fn active(&self) -> &PolicyRef {
        self.bound
            .as_ref()
            .map_or(&self.native_ref, |bound| &bound.policy)
    }

    /// What happened so far.
    pub fn statistics(&self) -> &PolicyStatistics {
        &self.statistics
    }

    /// Answers a question at `now_ms` of the scheduler's clock.
    pub fn answer(&mut self, question: &Question, now_ms: u64) -> (PolicyRef, Verdict) {
        let started = Instant::now();
        let columns = EvictionColumns::of(&question.programs);
        let (policy, scores) = self.scores(question.purpose, &columns, now_ms);
        let took_us = started.elapsed().as_micros() as u64;
        self.statistics.asked_us += took_us;
        self.statistics.slowest_us = self.statistics.slowest_us.max(took_us);
        (policy, verdict(question, &scores))
    }

    fn scores(
        &mut self,
        purpose: Purpose,
        columns: &EvictionColumns,
        now_ms: u64,
    ) -> (PolicyRef, Vec<f64>) {
        if let Some(bound) = &mut self.bound
            && !matches!(self.breaker.state(now_ms), BreakerState::Open { .. })
        {
            match ask(&mut bound.instance, purpose, columns, now_ms) {
                Ok(scores) => {
                    self.breaker.record_success(now_ms);
                    self.statistics.answered += 1;
                    return (bound.policy.clone(), scores);
                }
                // It leaves this question to the default.
                Err(PolicyFault::NotSupported) => {}
                Err(fault) => self.record_fault(&fault, now_ms),
            }
        }
        self.statistics.fallbacks += u64::from(self.bound.is_some());
        (
            self.native_ref.clone(),
            self.native.scores(purpose, columns),
        )
    }

    /// A fault counts; a policy that keeps failing is given up for the one
    /// before it.
    fn record_fault(&mut self, fault: &PolicyFault, now_ms: u64) {
        self.statistics.faults += 1;
        self.statistics.latest_fault = Some(fault.to_string());
        self.breaker.record_fault(now_ms);
        let policy = self.active().clone();
        tracing::warn!(%policy, %fault, "the policy failed; the built-in default answers");
        if self.breaker.should_roll_back(now_ms) {
            self.bound = self.previous.take();
            self.breaker = Breaker::new(self.breaker_limits.clone());
            self.statistics.rollbacks += 1;
            tracing::error!(%policy, now = %self.active(), "the binding was rolled back");
        }
    }
}

impl Default for PolicyDesk {
    fn default() -> Self {
        Self::new(BreakerLimits::default())
    }
}

fn ask(
    policy: &mut PolicyInstance,
    purpose: Purpose,
    c: &EvictionColumns,
    now_ms: u64,
) -> Result<Vec<f64>, PolicyFault> {
    let policy = policy.as_eviction_mut().ok_or(PolicyFault::NotSupported)?;
    let context = CallContext::at(now_ms);
    let (tokens, phase_ms, steps, extra) = (&c.tokens, &c.phase_ms, &c.steps, &[]);
    match purpose {
        Purpose::Weigh { .. } => policy.weigh(
            &context,
            &ActingColumns {
                tokens,
                phase_ms,
                extra,
            },
        ),
        Purpose::Pause { .. } => policy.pause_order(
            &context,
            &ActiveColumns {
                tokens,
                acting: &c.acting,
                phase_ms,
                steps,
                extra,
            },
        ),
        Purpose::Restore => policy.restore_order(
            &context,
            &WaitingColumns {
                tokens,
                reasoning: &c.reasoning,
                waited_ms: &c.waited_ms,
                steps,
                extra,
            },
        ),
    }
}
