//! What a handle has written without an answer, so that it is unknown whether it was stored.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use super::Mark;
use crate::{Batch, RefusedRow};

/// Most commands for which it is unknown whether they were stored.
const UNSURE_MAX: usize = 256;

/// A batch that may or may not have been committed.
#[derive(Debug)]
struct Doubt {
    mark: Mark,
    digest: u64,
    appended: Appended,
}

/// The result of a batch.
#[derive(Clone, Debug)]
pub(super) struct Appended {
    /// Last sequence number of the journal after it.
    pub(super) last_seq: u64,
    /// Rows that were left out.
    pub(super) refused: Vec<RefusedRow>,
}

/// The batch in doubt, if any; the next batch resolves it.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<Option<Doubt>>);

impl Doubts {
    /// The transaction and the result of a batch, if that is the one in doubt.
    pub(super) fn find(&self, batch: &Batch) -> Option<(Mark, Appended)> {
        let doubt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let doubt = doubt.as_ref()?;
        let same = doubt.digest == digest(batch);
        same.then(|| (doubt.mark.clone(), doubt.appended.clone()))
    }

    /// Nothing is in doubt any more.
    pub(super) fn clear(&self) {
        self.set(None);
    }

    fn set(&self, doubt: Option<Doubt>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = doubt;
    }
}

/// A commit in progress. If it ends without an answer, by an error or because the caller stopped
/// waiting, the batch is in doubt.
pub(super) struct Pending<'a> {
    pub(super) doubts: &'a Doubts,
    pub(super) batch: &'a Batch,
    pub(super) mark: Option<Mark>,
    pub(super) appended: Appended,
}

impl Pending<'_> {
    /// The commit got an answer.
    pub(super) fn answered(&mut self) {
        self.mark = None;
        self.doubts.clear();
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            self.doubts.set(Some(Doubt {
                mark,
                digest: digest(self.batch),
                appended: self.appended.clone(),
            }));
        }
    }
}

fn digest(batch: &Batch) -> u64 {
    let mut hasher = DefaultHasher::new();
    batch.hash(&mut hasher);
    hasher.finish()
}

/// The commands of a handle for which it is unknown whether they were stored.
#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<VecDeque<String>>);

impl Unsure {
    pub(super) fn has(&self, command: &str) -> bool {
        let unsure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unsure.iter().any(|known| known == command)
    }

    pub(super) fn set(&self, command: &str, is_unsure: bool) {
        let mut unsure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unsure.retain(|known| known != command);
        if is_unsure {
            unsure.push_back(command.to_owned());
            if unsure.len() > UNSURE_MAX {
                unsure.pop_front();
            }
        }
    }
}
