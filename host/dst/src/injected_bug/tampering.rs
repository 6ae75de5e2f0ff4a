//! Changes of the core's state that no event makes.

use serde_json::Value;
use treadle_core::programs;
use treadle_core::programs::{QueuedStep, Worker, WorkerState};

/// Changes the ledger of the first worker that matches, as a snapshot has it: its fields are
/// private. True if there is one.
pub(super) fn tamper_with_ledger(
    state: &mut programs::State,
    matches: impl Fn(&Worker) -> bool,
    change: impl FnOnce(&mut Value),
) -> bool {
    let mut workers = state.workers.values_mut();
    let Some(w) = workers.find(|w| matches(w)) else {
        return false;
    };
    let mut ledger = serde_json::to_value(&w.ledger).expect("a ledger can be written");
    change(&mut ledger);
    w.ledger = serde_json::from_value(ledger).expect("a ledger can be read");
    true
}

/// Adds a waiting step to the count, as a snapshot has it.
pub(super) fn miscount_waiting(state: &mut programs::State) {
    let mut waiting = serde_json::to_value(&state.waiting).expect("it can be written");
    waiting["steps"] = (state.waiting.steps() + 1).into();
    state.waiting = serde_json::from_value(waiting).expect("it can be read");
}

/// Changes the state of workers from one to another.
pub(super) fn forget_state(
    state: &mut programs::State,
    known: WorkerState,
    other: WorkerState,
) -> bool {
    let mut changed = false;
    for w in state.workers.values_mut().filter(|w| w.state == known) {
        w.state = other;
        changed = true;
    }
    changed
}

/// Swaps the priorities of the first and the last step of a run queue.
pub(super) fn reverse_run_queues(state: &mut programs::State) -> bool {
    let mut changed = false;
    for w in state.workers.values_mut() {
        let (Some(first), Some(last)) = (w.line.first().copied(), w.line.last().copied()) else {
            continue;
        };
        if first.priority == last.priority {
            continue;
        }
        changed = true;
        for (queued_step, priority) in [(first, last.priority), (last, first.priority)] {
            w.line.remove(&queued_step);
            w.line.insert(QueuedStep {
                priority,
                ..queued_step
            });
            if let Some(s) = state.steps.get_mut(&queued_step.step) {
                s.priority = priority.0;
            }
        }
    }
    changed
}
