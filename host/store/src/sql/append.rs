//! Appends batches: checks them against the journal's head, writes each as one transaction, and
//! recognises a batch whose commit got no answer.

use super::doubts::{Appended, Doubts, Pending};
use super::head::{self, Head};
use super::{Engine, Work, bindings, events, programs, salvage, within};
use crate::leadership::Term;
use crate::{BATCH_ROWS_MAX, Batch, Placeholder, RefusedRow, StoreError};

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
        let last_seq = events::last_seq(engine).await?;
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
        doubts.clear();
        return Ok(appended);
    }
    term.admit(head.epoch)?;
    let last_seq = events::follow(head.last_seq, &batch.events)?;
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
    events::add_events(work, &batch.events, last_seq).await?;
    work.insert(&batch.decisions).await?;
    work.insert(&batch.programs).await?;
    work.insert(&batch.workers).await?;
    work.insert(&batch.steps).await?;
    for set in &batch.bindings {
        bindings::put(work, set).await?;
    }
    work.insert(&batch.actions).await?;
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
