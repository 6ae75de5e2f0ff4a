//! Infers which engines served in a window.

use super::workload::RecordedWorker;
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::Event;
use treadle_core::memory::Capacity;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::WorkerState;
use treadle_model::WorkerId;

/// An engine as events show it.
struct TrackedWorker {
    worker: RecordedWorker,
    /// Whether it answered at the time of some step's arrival.
    served: bool,
}

/// Engines and their states.
#[derive(Default)]
pub(super) struct WorkerTracker {
    workers: BTreeMap<WorkerId, TrackedWorker>,
    /// Engines that do not answer, including unknown ones.
    lost: BTreeSet<WorkerId>,
    /// Engines that are being drained, including unknown ones.
    draining: BTreeSet<WorkerId>,
    /// The class of hardware of each engine that has one, including unknown ones.
    classes: BTreeMap<WorkerId, Box<str>>,
    /// Engines that were removed before they served.
    gone: BTreeSet<WorkerId>,
    /// Whether engines were added, removed or changed since the last step arrived.
    changed: bool,
}

impl WorkerTracker {
    /// Processes an event about an engine. Returns true if one was added, removed, lost, recovered,
    /// or taken out of service or back.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Program(ProgramEvent::WorkerAdded {
                worker,
                url,
                capacity,
                ..
            }) => {
                self.gone.remove(worker);
                let known = || TrackedWorker {
                    worker: RecordedWorker {
                        url: url.clone(),
                        kv_tokens: None,
                        class: None,
                    },
                    served: false,
                };
                let seen = self.workers.entry(*worker).or_insert_with(known);
                learn(&mut seen.worker, capacity);
            }
            Event::Program(ProgramEvent::WorkerCapacityRead {
                worker, capacity, ..
            }) => {
                if let Some(seen) = self.workers.get_mut(worker) {
                    learn(&mut seen.worker, capacity);
                }
                return false;
            }
            Event::Program(ProgramEvent::WorkerClassSet { worker, class }) => {
                match class {
                    Some(class) => self.classes.insert(*worker, class.clone()),
                    None => self.classes.remove(worker),
                };
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
                // One that is removed after it has served is replayed all the same.
                if self.workers.get(worker).is_none_or(|seen| !seen.served) {
                    self.workers.remove(worker);
                    self.gone.insert(*worker);
                }
            }
            Event::Program(ProgramEvent::WorkerStateSet { worker, state }) => {
                // A cordoned engine still serves its programs.
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

    /// Marks the engines that answer as serving, when a step arrives.
    pub(super) fn serve(&mut self) {
        if std::mem::take(&mut self.changed) {
            for (id, seen) in &mut self.workers {
                seen.served |= !self.lost.contains(id) && !self.draining.contains(id);
            }
        }
    }

    /// Whether events have reported the engine, even if it was removed.
    pub(super) fn knows(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker) || self.gone.contains(&worker)
    }

    /// Adds an engine whose registration is not in the events.
    pub(super) fn beside(&mut self, worker: WorkerId, known: RecordedWorker) {
        if !self.knows(worker) {
            let seen = TrackedWorker {
                worker: known,
                served: false,
            };
            self.workers.insert(worker, seen);
            self.changed = true;
        }
    }

    /// The engines that served, or all known ones if none did.
    pub(super) fn serving(mut self) -> Vec<RecordedWorker> {
        let any = self.workers.values().any(|seen| seen.served);
        let workers = self.workers.into_iter();
        let served = workers.filter(|(_, seen)| seen.served || !any);
        let known = served.map(|(id, seen)| RecordedWorker {
            class: self.classes.remove(&id),
            ..seen.worker
        });
        known.collect()
    }
}

fn learn(worker: &mut RecordedWorker, capacity: &Capacity) {
    worker.kv_tokens = capacity.tokens.or(worker.kv_tokens);
}
