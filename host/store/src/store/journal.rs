//! The journal, and the state of the core that it leads to.

use async_trait::async_trait;

use crate::{
    Batch, DecisionPage, DecisionRow, EventPage, EventRow, Placeholder, Pruned, RefusedRow,
    Retention, Snapshot, StoreError,
};

/// Events, decisions and snapshots; and the writing of all rows that become durable with them.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes a batch as one transaction and returns the last sequence number of the journal.
    ///
    /// On an error that names a reason, nothing of the batch is stored. If the connection broke
    /// during the commit, the batch may be stored: repeating the same batch on the same handle
    /// detects that, and succeeds without storing it twice.
    ///
    /// # Errors
    /// [`StoreError::Gap`] if the events don't continue the journal one by one,
    /// [`StoreError::Orphan`] if a step's program is neither stored nor in the batch,
    /// [`StoreError::TooLarge`] past [`BATCH_ROWS_MAX`](crate::BATCH_ROWS_MAX).
    async fn append(&self, batch: &Batch) -> Result<u64, StoreError>;

    /// Writes the rows of a batch that can be stored as one transaction, and returns the others.
    /// For batches that [`Journal::append`] refused with an error that
    /// [`StoreError::is_permanent`].
    ///
    /// A refused row is left out. A refused event is replaced in the journal by its `placeholder`
    /// with the same number, because the journal has no gaps. The batch may exceed
    /// [`BATCH_ROWS_MAX`](crate::BATCH_ROWS_MAX).
    ///
    /// # Errors
    /// [`StoreError::Gap`] as for [`Journal::append`]; otherwise only temporary errors.
    async fn append_what_fits(
        &self,
        batch: &Batch,
        placeholder: Placeholder,
    ) -> Result<Vec<RefusedRow>, StoreError>;

    /// Sequence number of the last event that was ever appended; 0 for an empty journal.
    async fn last_seq(&self) -> Result<u64, StoreError>;

    /// Up to `limit` events with a sequence number greater than `seq`, oldest first.
    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<EventRow>, StoreError>;

    /// Events that match a filter.
    async fn events_page(&self, page: &EventPage) -> Result<Vec<EventRow>, StoreError>;

    /// Decisions in the order in which they were taken, of one program or of all.
    async fn decisions(&self, page: &DecisionPage) -> Result<Vec<DecisionRow>, StoreError>;

    /// The event of the last of the first `rows` decisions that a query for this page scans,
    /// whether they match or not. `None` if there are fewer, or if the matching ones are found by
    /// an index.
    async fn decisions_reach(
        &self,
        page: &DecisionPage,
        rows: u32,
    ) -> Result<Option<u64>, StoreError>;

    /// Keeps the state of the core as it was after event `snapshot.seq`; the newest
    /// [`SNAPSHOTS_KEPT`](crate::SNAPSHOTS_KEPT) stay.
    ///
    /// # Errors
    /// [`StoreError::Ahead`] if the journal does not reach that event, [`StoreError::TooLarge`]
    /// past [`SNAPSHOT_BYTES_MAX`](crate::SNAPSHOT_BYTES_MAX).
    async fn save_snapshot(&self, snapshot: &Snapshot) -> Result<(), StoreError>;

    /// The newest snapshot; recovery replays the events after it.
    async fn latest_snapshot(&self) -> Result<Option<Snapshot>, StoreError>;

    /// Removes rows past their retention, at most [`PRUNE_ROWS_MAX`](crate::PRUNE_ROWS_MAX) rows of
    /// a table; call again while [`Pruned::more`].
    ///
    /// Events and decisions after the newest snapshot are always kept, and all of them if there is
    /// no snapshot: recovery needs them. Events that a sink has not received are kept too, within a
    /// limit and while they fit into the journal's bytes. A caller that recovers in another way
    /// saves an empty snapshot.
    async fn prune(&self, retention: &Retention) -> Result<Pruned, StoreError>;
}
