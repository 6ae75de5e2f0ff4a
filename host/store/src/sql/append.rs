//! Appends batches: checks them against the journal's head, writes each as one transaction, and
//! recognises a batch whose commit got no answer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use super::head::{self, Head, Mark};
use super::{
    Engine, Work, actions, bindings, journal, programs, salvage, steps, weights, within, workers,
};
use crate::leadership::Term;
use crate::{BATCH_ROWS_MAX, Batch, Placeholder, RefusedRow, StoreError};

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
    fn find(&self, batch: &Batch) -> Option<(Mark, Appended)> {
        let doubt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let doubt = doubt.as_ref()?;
        let same = doubt.digest == digest(batch);
        same.then(|| (doubt.mark.clone(), doubt.appended.clone()))
    }

    fn set(&self, doubt: Option<Doubt>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = doubt;
    }
}

/// A commit in progress. If it ends without an answer, by an error or because the caller stopped
/// waiting, the batch is in doubt.
struct Pending<'a> {
    doubts: &'a Doubts,
    batch: &'a Batch,
    mark: Option<Mark>,
    appended: Appended,
}

impl Pending<'_> {
    fn answered(&mut self) {
        self.mark = None;
        self.doubts.set(None);
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

/// Writes a batch: either as a whole, or, given a placeholder for refused events, all rows that can
/// be stored.
pub(super) async fn append<E: Engine>(
    engine: &E,
    term: &Term,
    doubts: &Doubts,
    batch: &Batch,
    placeholder: Option<Placeholder>,
) -> Result<Appended, StoreError> {
    if placeholder.is_none() {
        within("the batch, in rows,", batch.len(), BATCH_ROWS_MAX)?;
    }
    if batch.is_empty() {
        let last_seq = journal::last_seq(engine).await?;
        let refused = Vec::new();
        return Ok(Appended { last_seq, refused });
    }
    let mut work = engine.begin().await?;
    let head = head::hold::<E>(&mut work).await?;
    // Before the fence: a committed batch stays committed, even if another handle leads by now.
    if let Some((mark, appended)) = doubts.find(batch)
        && head.last_seq >= appended.last_seq
        && engine.committed(&mut work, &mark, batch).await?
    {
        doubts.set(None);
        return Ok(appended);
    }
    term.admit(head.epoch)?;
    let last_seq = journal::follow(head.last_seq, &batch.events)?;
    let room = engine.make_room(&mut work, head.last_seq, last_seq).await?;
    let refused = match placeholder {
        Some(placeholder) => salvage::write(&mut work, batch, last_seq, placeholder).await?,
        None => write(&mut work, batch, last_seq).await?,
    };
    let appended = Appended { last_seq, refused };
    let appended = commit(work, batch, doubts, head, appended).await?;
    engine.keep_room(room);
    Ok(appended)
}

async fn write(
    work: &mut impl Work,
    batch: &Batch,
    last_seq: u64,
) -> Result<Vec<RefusedRow>, StoreError> {
    journal::add_events(work, &batch.events, last_seq).await?;
    journal::add_decisions(work, &batch.decisions).await?;
    programs::put(work, &batch.programs).await?;
    workers::put(work, &batch.workers).await?;
    steps::put(work, &batch.steps).await?;
    for set in &batch.bindings {
        bindings::put(work, set).await?;
    }
    for row in &batch.weights {
        weights::note(work, row).await?;
    }
    actions::put(work, &batch.actions).await?;
    for row in &batch.rewards {
        programs::reward(work, row).await?;
    }
    Ok(Vec::new())
}

async fn commit(
    work: impl Work,
    batch: &Batch,
    doubts: &Doubts,
    head: Head,
    appended: Appended,
) -> Result<Appended, StoreError> {
    let mut pending = Pending {
        doubts,
        batch,
        mark: head.mark,
        appended,
    };
    work.commit().await?;
    pending.answered();
    Ok(pending.appended.clone())
}
