//! The machine of weights: which version each engine holds, by what its answers prove, and updates
//! to the next one. It promises that no token is sampled from a version that is not on record, and
//! that no engine serves a mixture of two.
//!
//! An engine whose weights treadle loads gets steps only while it *holds* an admitted version. It
//! leaves that state before it is paused, and comes back when it has reported the version's name,
//! its checksum agrees with that of the other engines, and its caches were cleared. A call that
//! changes weights is made once: if its answer is lost, the engine is asked what it has, and only a
//! checksum that another engine has too is believed, or a name that its software has only for
//! whole weights. Whatever can't be proven is loaded again as a whole, once the update is over, at
//! growing intervals.
//!
//! # Order of an update
//!
//! 1. *Preparing*: each engine is asked whether it can be loaded. All serve meanwhile.
//! 2. *Cutting*: once enough engines are ready, no step begins. Steps that were cut are waited for,
//!    for a short time: some engines crash if a request is aborted while they are paused.
//! 3. *Loading*: each engine is paused, loads, and is verified, and its caches are cleared.
//! 4. *Resuming*: all generate again, and the version is in service.
//!
//! A trainer may drive updates itself, by the engines' own protocols (`driven.rs`): it pauses and
//! loads, and the rest is the same.
//!
//! A rolling update takes one engine after the other through this, and two versions serve
//! meanwhile.

mod call;
mod check;
mod command;
mod driven;
mod event;
mod group;
mod holding;
mod invariants;
mod job;
mod release;
mod state;
mod trainer;
mod trainer_calls;
mod update;
mod version;

pub use call::{Answer, Call, Checksum};
pub use check::{QUORUM_MAX, READY_MAX_S, WeightsError};
pub use command::WeightsCommand;
pub use event::{UpdatePlan, WeightsEvent};
pub use group::Group;
pub use holding::{Holding, PendingCall, Phase, Unanswered};
pub use job::{EndedUpdate, JobWeights, Stage, Update};
pub use state::State;
pub use trainer::{Extent, Trainer, TrainerCall};
pub use version::{Checksums, Weights};

use driven::CalledBy;
use std::collections::{BTreeSet, VecDeque};
use treadle_machine::DaemonEvent;
use treadle_machine::{Machine, Notice, Notified};
use treadle_model::{Timestamp, WorkerId};

/// What updates of weights read of engines.
pub trait Engines {
    /// All engines that are in service.
    fn engines(&self) -> Vec<WorkerId>;

    /// Whether an engine answers.
    fn answers(&self, worker: WorkerId) -> bool;

    /// Whether a step that was cut has not ended there.
    fn ends_steps(&self, worker: WorkerId) -> bool;
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct WeightsMachine {
    state: State,
    now: Timestamp,
    commands: VecDeque<WeightsCommand>,
    notices: VecDeque<Notice>,
    /// Jobs that something happened to.
    touched: BTreeSet<Box<str>>,
    /// Engines came, went, were lost or answer again.
    changed: bool,
    /// The daemon restarted with this event.
    restarted: bool,
    /// When something is due.
    due: Option<Timestamp>,
}

impl WeightsMachine {
    /// The machine as a snapshot has it.
    pub fn with_state(state: State) -> Self {
        let touched = state.names().collect();
        Self {
            state,
            touched,
            ..Self::default()
        }
    }

    /// Its state, as a snapshot has it.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn transition(&mut self, event: &WeightsEvent, engines: &dyn Engines) {
        self.touched.insert(event.job().into());
        match event {
            WeightsEvent::WeightsPublished {
                job,
                weights,
                workers,
                plan,
            } => self
                .state
                .publish(job, weights, workers, *plan, engines, self.now),
            WeightsEvent::WeightsCallEnded {
                worker,
                number,
                answer,
                ..
            } => {
                if self.state.ended(*worker, *number, answer, self.now) {
                    let (worker, weights) = (*worker, self.state.label_of(*worker));
                    self.notices
                        .push_back(Notice::WeightsChanged { worker, weights });
                }
            }
            WeightsEvent::WeightsReleased { job } => self.state.release(job),
            WeightsEvent::WeightsRelayed {
                job,
                worker,
                lineage,
                all,
                call,
            } => {
                let by = CalledBy {
                    call,
                    lineage: *lineage,
                    all: *all,
                };
                self.state.called(job, *worker, &by, engines, self.now);
            }
            WeightsEvent::WeightsRelayEnded {
                job,
                worker,
                answer,
            } => self.state.answered(job, *worker, answer, self.now),
        }
    }

    /// Notes which engines are there and answer.
    fn look(&mut self, engines: &dyn Engines) {
        let present: BTreeSet<WorkerId> = engines.engines().into_iter().collect();
        let was_any_fenced = !self.state.fenced.is_empty();
        for name in self.state.look(&present, engines, self.now) {
            self.touched.insert(name);
        }
        // A worker that was added at a fenced address is fenced too. If the worker that the fence was
        // for has gone, nothing else ends that.
        let is_free = |worker: &&WorkerId| self.state.holding(**worker).is_none();
        for worker in present.iter().filter(is_free).filter(|_| was_any_fenced) {
            self.notices.push_back(Notice::WorkerFenced {
                worker: *worker,
                fenced: false,
            });
        }
    }

    /// Takes a job's update on, and makes the calls that are due.
    fn settle_job(&mut self, name: &str, engines: &dyn Engines) {
        let now = self.now;
        if let Some(served) = self.state.advance(name, engines, now) {
            self.notices.push_back(Notice::VersionServed {
                job: name.into(),
                lineage: served.lineage,
                version: served.version,
            });
        }
        self.state.finish(name, now);
        let calls = self.state.calls(name, engines, now);
        self.commands.extend(calls);
    }
}

impl Machine for WeightsMachine {
    type Event = WeightsEvent;
    type Command = WeightsCommand;
    type View = dyn Engines;

    fn advance(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn apply(&mut self, event: &WeightsEvent, engines: &Self::View) {
        self.transition(event, engines);
    }

    fn daemon(&mut self, event: &DaemonEvent) {
        if matches!(event, DaemonEvent::DaemonRestarted) {
            self.restarted = true;
        }
    }

    fn settle(&mut self, engines: &Self::View) {
        if std::mem::take(&mut self.restarted) {
            self.state.lose_calls(self.now);
            self.changed = true;
        }
        if std::mem::take(&mut self.changed) {
            self.look(engines);
        }
        let is_due = self.due.is_some_and(|due| due <= self.now);
        if is_due {
            self.touched.extend(self.state.names());
        }
        self.touched.extend(self.state.cutting());
        self.state.await_cuts(engines, self.now);
        if self.touched.is_empty() {
            return;
        }
        while let Some(job) = self.touched.pop_first() {
            self.settle_job(&job, engines);
        }
        for (worker, fenced) in self.state.fences() {
            self.notices
                .push_back(Notice::WorkerFenced { worker, fenced });
        }
        self.due = self.state.next_deadline(self.now);
    }

    fn poll_command(&mut self) -> Option<WeightsCommand> {
        self.commands.pop_front()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.due
    }

    fn assert_invariants(&self) {
        self.check_invariants();
    }
}

impl Notified for WeightsMachine {
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::WorkersChanged => self.changed = true,
            Notice::WeightsNamed { worker, sent, name } => {
                let job = self.state.contradict(*worker, *sent, name, self.now);
                self.touched.extend(job);
            }
            Notice::RunWentBack { job } => {
                self.state.go_back(job, self.now);
                self.touched.insert(job.clone());
            }
            Notice::JobRemoved { job } => {
                self.state.release(job);
                self.touched.insert(job.clone());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
