//! Questions to policies that wait for their answers.

use crate::programs::question::Purpose;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::{AskId, ProgramId, Timestamp};

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Its kind.
    pub purpose: Purpose,
    /// Its programs, in the core's own order of preference.
    pub candidates: Vec<ProgramId>,
    /// When the core answers itself.
    pub deadline: Timestamp,
}

/// All questions without an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asks {
    open: BTreeMap<AskId, Ask>,
    /// The next question's id.
    next: u64,
}

impl Asks {
    /// The questions without an answer.
    pub fn open(&self) -> &BTreeMap<AskId, Ask> {
        &self.open
    }

    /// True if a question of this kind has no answer yet.
    pub(crate) fn has(&self, is_same: impl Fn(Purpose) -> bool) -> bool {
        self.open.values().any(|ask| is_same(ask.purpose))
    }

    /// Adds a question, and returns its id.
    pub(crate) fn add(&mut self, ask: Ask) -> AskId {
        let id = AskId(self.next);
        self.next += 1;
        self.open.insert(id, ask);
        id
    }

    /// Removes a question; `None` if it was answered before.
    pub(crate) fn remove(&mut self, id: AskId) -> Option<Ask> {
        self.open.remove(&id)
    }

    /// Removes all questions.
    pub(crate) fn remove_all(&mut self) -> BTreeMap<AskId, Ask> {
        std::mem::take(&mut self.open)
    }
}
