//! What waits for memory: the queue, new programs that are asked about together, and workers that
//! are reserved for starved programs.

use crate::programs::program::QueueEntry;
use crate::programs::queue::Queue;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{ProgramId, WorkerId};

/// What waits for memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingList {
    /// Programs that wait for placement.
    queue: Queue,
    /// Steps that wait for placement.
    steps: u64,
    /// Unplaced programs of jobs with a priority policy that no question has covered yet.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    newcomers: BTreeSet<ProgramId>,
    /// They have been gathered: the next question includes them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    newcomers_due: bool,
    /// Workers that admit no other program until this starved one fits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reservations: BTreeMap<WorkerId, ProgramId>,
    /// Something changed since the last restore question.
    restore_wanted: bool,
    /// Workers changed since it was last looked whose wait is suspended.
    #[serde(skip)]
    suspensions_due: bool,
}

impl WaitingList {
    /// Programs that wait for placement.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Programs that wait for placement, the longest waiting first.
    pub(crate) fn programs(&self) -> impl Iterator<Item = ProgramId> + '_ {
        self.queue.oldest().map(|(_, program)| program)
    }

    /// Number of steps that wait for placement.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Workers that admit no other program until this starved one fits.
    pub fn reservations(&self) -> &BTreeMap<WorkerId, ProgramId> {
        &self.reservations
    }

    /// Unplaced programs of jobs with a priority policy that no question has covered yet.
    pub(crate) fn newcomers(&self) -> &BTreeSet<ProgramId> {
        &self.newcomers
    }

    /// Whether they have been gathered: the next question includes them.
    pub(crate) fn are_newcomers_due(&self) -> bool {
        self.newcomers_due
    }

    /// Asks which programs to restore after this event, if there is one and a worker has room.
    pub(crate) fn want_restore(&mut self) {
        self.restore_wanted = true;
    }

    /// Whether something changed since the last restore question; from then on it has not.
    pub(crate) fn take_restore_wanted(&mut self) -> bool {
        let wanted = self.restore_wanted && !self.queue.is_empty();
        self.restore_wanted &= !wanted;
        wanted
    }

    /// Looks after this event whose wait is suspended.
    pub(crate) fn look_for_suspensions(&mut self) {
        self.suspensions_due = true;
    }

    /// Whether workers changed since it was last looked; from then on they have not.
    pub(crate) fn take_suspensions_due(&mut self) -> bool {
        std::mem::take(&mut self.suspensions_due)
    }

    /// Adds a step that waits for placement.
    pub(crate) fn add_step(&mut self) {
        self.steps += 1;
    }

    /// Removes such a step.
    pub(crate) fn remove_step(&mut self) {
        self.steps -= 1;
    }

    /// Files a program in the queue.
    pub(crate) fn file(&mut self, program: ProgramId, entry: QueueEntry) {
        self.queue.insert(entry.since, entry.need_tokens, program);
    }

    /// Removes a program from the queue.
    pub(crate) fn unfile(&mut self, program: ProgramId, entry: QueueEntry) {
        self.queue.remove(entry.since, entry.need_tokens, program);
    }

    /// Sets whether a program is one that no question has covered yet.
    pub(crate) fn set_newcomer(&mut self, program: ProgramId, is_newcomer: bool) {
        if is_newcomer {
            self.newcomers.insert(program);
        } else {
            self.newcomers.remove(&program);
        }
    }

    /// Sets whether the next question includes the newcomers.
    pub(crate) fn set_newcomers_due(&mut self, are_due: bool) {
        self.newcomers_due = are_due;
    }

    /// Reserves a worker for a starved program.
    pub(crate) fn reserve(&mut self, worker: WorkerId, program: ProgramId) {
        self.reservations.insert(worker, program);
    }

    /// Ends the reservation of a worker.
    pub(crate) fn unreserve(&mut self, worker: WorkerId) {
        self.reservations.remove(&worker);
    }

    /// Keeps only the reservations of these programs.
    pub(crate) fn keep_reservations_of(&mut self, programs: &[ProgramId]) {
        let holds = |holder: &ProgramId| programs.contains(holder);
        self.reservations.retain(|_, holder| holds(holder));
    }

    /// Ends the reservation of a program that no longer waits for placement.
    pub(crate) fn end_reservation(&mut self, program: ProgramId) {
        let before = self.reservations.len();
        self.reservations.retain(|_, holder| *holder != program);
        self.restore_wanted |= self.reservations.len() < before;
    }
}
