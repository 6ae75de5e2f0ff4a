//! A policy with a seat at the desk, and the breaker that decides whether it is
//! asked.

use treadle_model::PolicyRef;
use treadle_policy_runtime::{
    BindingState, Breaker, BreakerLimits, BreakerState, CallContext, PolicyInstance,
};

/// Time for telling, and for reading, what a policy has learnt: decisions wait.
const HAND_OVER_DEADLINE_MS: u64 = 2;

/// An uploaded policy, ready to be asked.
pub struct BoundPolicy {
    /// Its name, version and digest.
    pub policy: PolicyRef,
    /// Its running instance.
    pub instance: PolicyInstance,
}

/// A policy that is asked unless its breaker is open.
pub(super) struct Seat {
    /// Its name, version and digest.
    pub(super) policy: PolicyRef,
    /// Its running instance.
    pub(super) instance: PolicyInstance,
    breaker: Breaker,
}

impl Seat {
    /// A policy that has not failed yet.
    pub(super) fn new(bound: BoundPolicy, limits: BreakerLimits) -> Self {
        Self {
            policy: bound.policy,
            instance: bound.instance,
            breaker: Breaker::new(limits),
        }
    }

    /// Whether it is asked now.
    pub(super) fn may_be_asked(&self, now_ms: u64) -> bool {
        !matches!(self.breaker.state(now_ms), BreakerState::Open { .. })
    }

    /// It answered.
    pub(super) fn record_success(&mut self, now_ms: u64) {
        self.breaker.record_success(now_ms);
    }

    /// It failed. True if it has failed so often that it must go.
    pub(super) fn record_fault(&mut self, now_ms: u64) -> bool {
        self.breaker.record_fault(now_ms);
        self.breaker.should_roll_back(now_ms)
    }

    /// Gives it another chance from the beginning.
    pub(super) fn forgive(&mut self, limits: BreakerLimits) {
        self.breaker = Breaker::new(limits);
    }

    /// What it has stored, and what it has learnt.
    pub(super) fn kept(&mut self, now_ms: u64) -> (BindingState, Vec<u8>) {
        let context = CallContext {
            deadline_ms: Some(HAND_OVER_DEADLINE_MS),
            ..CallContext::at(now_ms)
        };
        let snapshot = self.instance.snapshot(&context).unwrap_or_else(|fault| {
            tracing::warn!(policy = %self.policy, %fault, "what the policy has learnt was not saved");
            Vec::new()
        });
        (self.instance.state().clone(), snapshot)
    }

    /// Takes over what a predecessor has learnt, if both keep anything. A
    /// predecessor that can't tell, or a successor that can't read it, begins
    /// without; a policy must do that after a restart anyway.
    pub(super) fn inherit(&mut self, predecessor: &mut Self, now_ms: u64) {
        self.instance
            .set_state(predecessor.instance.state().clone());
        let context = CallContext {
            deadline_ms: Some(HAND_OVER_DEADLINE_MS),
            ..CallContext::at(now_ms)
        };
        let handed_over = match predecessor.instance.snapshot(&context) {
            Ok(snapshot) if snapshot.is_empty() => return,
            Ok(snapshot) => self.instance.restore(&context, &snapshot),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = handed_over {
            tracing::warn!(
                from = %predecessor.policy, to = %self.policy, %fault,
                "what the policy had learnt was not handed over"
            );
        }
    }
}
