//! A policy in a slot of the evaluator, and the breaker that decides whether it is called.

use super::shadow::Shadows;
use crate::extra::extra_columns;
use std::sync::mpsc::{Receiver, TryRecvError};
use treadle_model::PolicyRef;
use treadle_policy_runtime::{
    BindingState, Breaker, BreakerLimits, BreakerState, CallContext, PolicyInstance,
};

/// Time limit for saving or restoring learnt state, as decisions wait for it.
const HAND_OVER_DEADLINE_MS: u64 = 2;

/// An uploaded policy, ready to be called.
pub struct BoundPolicy {
    /// Its name, version and digest.
    pub policy: PolicyRef,
    /// The id of its binding in the journal; 0 without one.
    pub id: u64,
    /// Its running instance.
    pub instance: PolicyInstance,
}

/// A policy that is called unless its breaker is open.
pub(super) struct PolicySlot {
    /// Its name, version and digest.
    pub(super) policy: PolicyRef,
    /// The id of its binding in the journal.
    pub(super) id: u64,
    /// Which extra columns it gets.
    pub(super) extra: Vec<usize>,
    instance_state: InstanceState,
    breaker: Breaker,
}

/// The location of the instance.
enum InstanceState {
    /// In the slot.
    Ready(Box<PolicyInstance>),
    /// With the thread that restarts it; decisions don't wait for that.
    Restarting(Receiver<Box<PolicyInstance>>),
    /// The thread has ended; the policy is not called any more.
    Gone,
}

impl PolicySlot {
    /// A policy without faults so far.
    pub(super) fn new(bound: BoundPolicy, limits: BreakerLimits) -> Self {
        Self {
            policy: bound.policy,
            id: bound.id,
            extra: extra_columns(bound.instance.world(), bound.instance.description()),
            instance_state: InstanceState::Ready(Box::new(bound.instance)),
            breaker: Breaker::new(limits),
        }
    }

    /// The instance, if it may be called now.
    pub(super) fn askable(&mut self, now_ms: u64) -> Option<&mut PolicyInstance> {
        if matches!(self.breaker.state(now_ms), BreakerState::Open { .. }) {
            return None;
        }
        self.instance()
    }

    /// The instance, unless it is being restarted.
    pub(super) fn instance(&mut self) -> Option<&mut PolicyInstance> {
        if let InstanceState::Restarting(back) = &self.instance_state {
            match back.try_recv() {
                Ok(instance) => self.instance_state = InstanceState::Ready(instance),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => self.instance_state = InstanceState::Gone,
            }
        }
        match &mut self.instance_state {
            InstanceState::Ready(instance) => Some(instance),
            InstanceState::Restarting(_) | InstanceState::Gone => None,
        }
    }

    /// Has an instance that was dropped for a fault or its memory restarted elsewhere; to be used
    /// after a call.
    pub(super) fn look_after(&mut self, shadows: &Shadows) {
        let InstanceState::Ready(instance) = &self.instance_state else {
            return;
        };
        if instance.memory_bytes() > 0 {
            return;
        }
        if let InstanceState::Ready(instance) =
            std::mem::replace(&mut self.instance_state, InstanceState::Gone)
        {
            self.instance_state = InstanceState::Restarting(shadows.warm(instance));
        }
    }

    /// Records an answer.
    pub(super) fn record_success(&mut self, now_ms: u64) {
        self.breaker.record_success(now_ms);
    }

    /// Records a fault. True if it has failed so often that it must be removed.
    pub(super) fn record_fault(&mut self, now_ms: u64) -> bool {
        self.breaker.record_fault(now_ms);
        self.breaker.should_roll_back(now_ms)
    }

    /// Closes the breaker and clears the faults.
    pub(super) fn forgive(&mut self, limits: BreakerLimits) {
        self.breaker = Breaker::new(limits);
    }

    /// Its stored and learnt state; `None` while it is restarted.
    pub(super) fn kept(&mut self, now_ms: u64) -> Option<(BindingState, Vec<u8>)> {
        let context = hand_over(now_ms);
        let policy = self.policy.clone();
        let instance = self.instance()?;
        let snapshot = instance.snapshot(&context).unwrap_or_else(|fault| {
            tracing::warn!(%policy, %fault, "saving the policy's learnt state failed");
            Vec::new()
        });
        Some((instance.state().clone(), snapshot))
    }

    /// Takes over a predecessor's stored and learnt state, if both keep any. If the predecessor
    /// can't save its learnt state, or the successor can't restore it, the successor starts
    /// without; a policy must do that after a restart anyway.
    pub(super) fn inherit(&mut self, predecessor: &mut Self, now_ms: u64) {
        let Some((state, snapshot)) = predecessor.kept(now_ms) else {
            return;
        };
        let (from, to) = (predecessor.policy.clone(), self.policy.clone());
        let Some(instance) = self.instance() else {
            return;
        };
        instance.set_state(state);
        if snapshot.is_empty() {
            return;
        }
        if let Err(fault) = instance.restore(&hand_over(now_ms), &snapshot) {
            tracing::warn!(%from, %to, %fault, "passing the policy's learnt state on failed");
        }
    }
}

fn hand_over(now_ms: u64) -> CallContext {
    CallContext {
        deadline_ms: Some(HAND_OVER_DEADLINE_MS),
        ..CallContext::at(now_ms)
    }
}
