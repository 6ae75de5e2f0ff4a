//! Which engines a window had.

use super::workload::RecordedWorker;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::worker::WorkerState;
use treadle_core::{Capacity, Event, ProgramEvent};
use treadle_model::WorkerId;

/// An engine as far as the window and what came before it show.
struct SeenWorker {
    worker: RecordedWorker,
    /// It was there, and answered, while a step came.
    served: bool,
}

/// Engines, and how they are.
#[derive(Default)]
pub(super) struct SeenWorkers {
    seen: BTreeMap<WorkerId, SeenWorker>,
    /// Those that do not answer, known or not.
    lost: BTreeSet<WorkerId>,
    /// Those that operators drain, known or not.
    draining: BTreeSet<WorkerId>,
    /// Those that were taken out before they served.
    gone: BTreeSet<WorkerId>,
    /// Some have come, gone or changed since the last step came.
    changed: bool,
}

impl SeenWorkers {
    /// Takes in an event about an engine; true if one joined, left, was lost or found, or was taken
    /// out of service or back.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Program(ProgramEvent::WorkerAdded {
                worker,
                url,
                capacity,
                ..
            }) => {
                self.gone.remove(worker);
                let known = || SeenWorker {
                    worker: RecordedWorker {
                        url: url.clone(),
                        kv_tokens: None,
                    },
                    served: false,
                };
                let seen = self.seen.entry(*worker).or_insert_with(known);
                learn(&mut seen.worker, capacity);
            }
            Event::Program(ProgramEvent::WorkerCapacityRead {
                worker, capacity, ..
            }) => {
                if let Some(seen) = self.seen.get_mut(worker) {
                    learn(&mut seen.worker, capacity);
                }
                return false;
            }
            Event::Program(ProgramEvent::WorkerLost { worker, .. }) => {
                self.lost.insert(*worker);
            }
            Event::Program(ProgramEvent::WorkerRecovered { worker }) => {
                self.lost.remove(worker);
            }
            Event::Program(ProgramEvent::WorkerRemoved { worker }) => {
                self.lost.remove(worker);
                self.draining.remove(worker);
                // One that goes after it has served is repeated all the same.
                if self.seen.get(worker).is_none_or(|seen| !seen.served) {
                    self.seen.remove(worker);
                    self.gone.insert(*worker);
                }
            }
            Event::Program(ProgramEvent::WorkerStateSet { worker, state }) => {
                // One that is cordoned serves the programs that it has.
                if *state == WorkerState::Draining {
                    self.draining.insert(*worker);
                } else {
                    self.draining.remove(worker);
                }
            }
            _ => return false,
        }
        self.changed = true;
        true
    }

    /// A step has come: those that answer serve in the window.
    pub(super) fn serve(&mut self) {
        if std::mem::take(&mut self.changed) {
            for (id, seen) in &mut self.seen {
                seen.served |= !self.lost.contains(id) && !self.draining.contains(id);
            }
        }
    }

    /// Whether events have reported it, gone again or not.
    pub(super) fn knows(&self, worker: WorkerId) -> bool {
        self.seen.contains_key(&worker) || self.gone.contains(&worker)
    }

    /// One whose registration is not in the events.
    pub(super) fn beside(&mut self, worker: WorkerId, known: RecordedWorker) {
        if !self.knows(worker) {
            let seen = SeenWorker {
                worker: known,
                served: false,
            };
            self.seen.insert(worker, seen);
            self.changed = true;
        }
    }

    /// Those that served; all that are known where that is none of them.
    pub(super) fn serving(self) -> Vec<RecordedWorker> {
        let any = self.seen.values().any(|seen| seen.served);
        let served = self.seen.into_values();
        let served = served.filter(|seen| seen.served || !any);
        served.map(|seen| seen.worker).collect()
    }
}

fn learn(worker: &mut RecordedWorker, capacity: &Capacity) {
    worker.kv_tokens = capacity.tokens.or(worker.kv_tokens);
}
