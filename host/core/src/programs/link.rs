//! What a scheduler and a gateway in another process exchange when they connect, so that both
//! continue with the same steps.
//!
//! Either may have missed the other's last actions: a scheduler that takes over knows what is on
//! record, a gateway knows what it does. First the gateway relays again what was not on record;
//! then [`reconcile`] compares.

use crate::programs::ProgramEvent;
use crate::programs::state::State;
use crate::programs::step::StepState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::{GatewayId, StepId, WorkerId};

/// An open step of a gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OpenStep {
    /// The step.
    pub step: StepId,
    /// Its engine; `None` while it waits for an instruction.
    pub at: Option<WorkerId>,
}

/// The changes that make both sides agree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconciliation {
    /// Events for the core to handle in this order, before any question that they raise is
    /// answered: an answer may send a step that is yet to be adopted.
    pub events: Vec<ProgramEvent>,
    /// Lost instructions, to be sent again: the step and its worker.
    pub dispatch: Vec<(StepId, WorkerId)>,
    /// Steps at an unknown or lost engine, which wait again, and those that were cut: the attempt
    /// ends.
    pub abort: Vec<StepId>,
    /// Steps that the scheduler no longer knows.
    pub over: Vec<StepId>,
}

/// Compares the scheduler's record of a gateway's steps with the gateway's open steps.
pub fn reconcile(state: &State, gateway: GatewayId, open: &[OpenStep]) -> Reconciliation {
    let mut plan = Reconciliation::default();
    // Cancelled steps free room for others, which may already be at engines.
    let mut cancelled = Vec::new();
    let open: BTreeMap<StepId, Option<WorkerId>> =
        open.iter().map(|open| (open.step, open.at)).collect();
    let is_lost = |worker| state.workers.get(&worker).is_some_and(|w| !w.is_healthy());
    let first = StepId::of(gateway, 0);
    let next = StepId::of(GatewayId(gateway.0 + 1), 0);
    for (step, known) in state.steps.range(first..next) {
        if known.is_cut && open.contains_key(step) {
            // The instruction to end it may have been lost.
            plan.abort.push(*step);
        }
        match (open.get(step), known.state) {
            (None, _) => cancelled.push(ProgramEvent::StepCancelled { step: *step }),
            (Some(None), StepState::Running { worker, .. }) => plan.dispatch.push((*step, worker)),
            (Some(Some(at)), held) if held.worker() != Some(*at) => {
                if state.workers.contains_key(at) {
                    plan.events.push(ProgramEvent::StepAdopted {
                        step: *step,
                        worker: *at,
                    });
                } else {
                    plan.abort.push(*step);
                }
            }
            // The instruction to drop it may have been lost; an answer that has begun goes on.
            (Some(Some(at)), _) if known.first_token_at.is_none() && is_lost(*at) => {
                plan.abort.push(*step);
            }
            (Some(_), _) => {}
        }
    }
    plan.events.append(&mut cancelled);
    let unknown = |step: &&StepId| !state.steps.contains_key(step);
    plan.over = open.keys().filter(unknown).copied().collect();
    plan
}
