//! Writes the rows of a refused batch that the database can store.
//!
//! Rows are written in parts, each after a savepoint. A refused part is rolled back and halved
//! until a single refused row remains, which is tried once more: an error that does not come again
//! was not the row's. All of this is one transaction.

use super::{Statement, TableRow, Work, bindings, events, programs};
use crate::{Batch, BindingSet, Placeholder, RefusedRow, RewardRow, StoreError};

/// Writes all rows of a batch that can be stored; a refused event is replaced by its placeholder.
pub(super) async fn write(
    work: &mut impl Work,
    batch: &Batch,
    last_seq: u64,
    placeholder: Placeholder,
) -> Result<Vec<RefusedRow>, StoreError> {
    let mut refused = Vec::new();
    for (event, row) in insert(work, &batch.events, |row| row.seq.to_string()).await? {
        let placeholder = placeholder(event, &row.cause);
        work.insert(&[placeholder]).await?;
        refused.push(RefusedRow {
            event: Some(event.seq),
            ..row
        });
    }
    if !batch.events.is_empty() {
        events::move_head(work, last_seq).await?;
    }
    let decisions = insert(work, &batch.decisions, |row| row.seq.to_string()).await?;
    refused.extend(decisions.into_iter().map(|(_, row)| row));
    let programs = insert(work, &batch.programs, |row| row.program.clone()).await?;
    refused.extend(programs.into_iter().map(|(_, row)| row));
    let workers = insert(work, &batch.workers, |row| row.worker.clone()).await?;
    refused.extend(workers.into_iter().map(|(_, row)| row));
    let steps = insert(work, &batch.steps, |row| row.step.to_string()).await?;
    refused.extend(steps.into_iter().map(|(_, row)| row));
    let actions = insert(work, &batch.actions, |row| row.action.to_string()).await?;
    refused.extend(actions.into_iter().map(|(_, row)| row));
    for set in &batch.bindings {
        let key = format!("{}/{}", set.world, set.job);
        let written = twice(work, set).await?;
        refused.extend(written.err().map(|error| refusal("bindings", key, &error)));
    }
    for row in &batch.rewards {
        let key = row.program.clone();
        let written = twice(work, row).await?;
        refused.extend(written.err().map(|error| refusal("programs", key, &error)));
    }
    Ok(refused)
}

/// Inserts the rows that the table can hold, in their order; returns the others.
async fn insert<'r, T: TableRow>(
    work: &mut impl Work,
    rows: &'r [T],
    key: fn(&T) -> String,
) -> Result<Vec<(&'r T, RefusedRow)>, StoreError> {
    let mut refused = Vec::new();
    let mut parts = vec![rows];
    while let Some(part) = parts.pop() {
        match part {
            [] => {}
            [row] => {
                let written = twice(work, part).await?;
                let refusal = |error| (row, refusal(T::TABLE, key(row), &error));
                refused.extend(written.err().map(refusal));
            }
            _ => {
                if once(work, part).await?.is_err() {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
    }
    Ok(refused)
}

/// What is written as a whole, or not at all.
trait Part: Sync {
    fn write(&self, work: &mut impl Work) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl<T: TableRow> Part for [T] {
    fn write(&self, work: &mut impl Work) -> impl Future<Output = Result<(), StoreError>> + Send {
        work.insert(self)
    }
}

impl Part for BindingSet {
    fn write(&self, work: &mut impl Work) -> impl Future<Output = Result<(), StoreError>> + Send {
        bindings::put(work, self)
    }
}

impl Part for RewardRow {
    fn write(&self, work: &mut impl Work) -> impl Future<Output = Result<(), StoreError>> + Send {
        programs::reward(work, self)
    }
}

/// Writes a part, and once more if it is refused. The inner error is the database's refusal.
async fn twice(
    work: &mut impl Work,
    part: &(impl Part + ?Sized),
) -> Result<Result<(), StoreError>, StoreError> {
    match once(work, part).await? {
        Ok(()) => Ok(Ok(())),
        Err(_) => once(work, part).await,
    }
}

async fn once(
    work: &mut impl Work,
    part: &(impl Part + ?Sized),
) -> Result<Result<(), StoreError>, StoreError> {
    work.execute(Statement::new("SAVEPOINT part")).await?;
    let written = part.write(work).await;
    end_part(work, written).await
}

/// Keeps the rows written since the savepoint, or rolls them back if the database refuses them
/// permanently.
async fn end_part(
    work: &mut impl Work,
    written: Result<(), StoreError>,
) -> Result<Result<(), StoreError>, StoreError> {
    if let Err(error) = &written
        && !error.is_permanent()
    {
        // The database may have rolled back the whole transaction.
        return written.map(Ok);
    }
    if written.is_err() {
        let undo = Statement::new("ROLLBACK TO SAVEPOINT part");
        work.execute(undo).await?;
    }
    work.execute(Statement::new("RELEASE SAVEPOINT part"))
        .await?;
    Ok(written)
}

fn refusal(table: &'static str, mut key: String, error: &StoreError) -> RefusedRow {
    key.truncate(key.floor_char_boundary(RefusedRow::KEY_BYTES_MAX));
    RefusedRow {
        table,
        key,
        event: None,
        cause: error.to_string(),
    }
}
