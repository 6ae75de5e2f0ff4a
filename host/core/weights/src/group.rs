//! The process group in which a trainer sends weights to a job's engines. Its members wait for each
//! other, so that one which is another process by now makes all others wait for ever.

use crate::holding::Holding;
use crate::trainer::TrainerCall;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{Timestamp, WorkerId};

/// Which engines joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Those that are there.
    pub members: BTreeSet<WorkerId>,
    /// Those that were lost since, with the reason.
    pub lost: BTreeMap<WorkerId, Box<str>>,
}

impl Group {
    /// Why nothing can be sent through it, in words.
    pub fn why_broken(&self) -> Option<String> {
        let (worker, cause) = self.lost.first_key_value()?;
        Some(format!(
            "{worker} joined the process group, and {cause}: all would wait for it for ever; have \
             all engines join a new one"
        ))
    }

    /// An engine joins. One that did before, or that finds the group broken, begins a new one.
    pub(crate) fn join(&mut self, worker: WorkerId) {
        if self.members.contains(&worker) || !self.lost.is_empty() {
            *self = Self::default();
        }
        self.members.insert(worker);
    }

    pub(crate) fn lose(&mut self, worker: WorkerId, cause: &str) {
        if self.members.remove(&worker) {
            self.lost.insert(worker, cause.into());
        }
    }

    /// An engine that was only out of reach is the process that joined.
    pub(crate) fn find(&mut self, worker: WorkerId) {
        if self.lost.remove(&worker).is_some() {
            self.members.insert(worker);
        }
    }
}

impl Holding {
    /// Whether it joins a process group: it may not generate meanwhile.
    pub(crate) fn is_joining(&self) -> bool {
        let trainer = self.trainer.as_ref();
        trainer.is_some_and(|trainer| trainer.call == Some(TrainerCall::Join))
    }

    pub(crate) fn joins(&mut self, now: Timestamp) {
        let trainer = self.trainer.get_or_insert_default();
        (trainer.call, trainer.since) = (Some(TrainerCall::Join), now);
    }
}
