//! The code that both databases share: statements, and the rows that they read and write.
//!
//! Each file has the rows of one or a few tables ([`table!`](table)) and the statements for them,
//! written once for both databases, and implements a trait of the store with them. The differences
//! (connections, bulk inserts, leadership) are behind [`Engine`] and [`Work`].

mod access;
mod actions;
mod append;
mod audit;
mod bindings;
mod bodies;
mod cells;
mod cluster;
mod commands;
mod doubts;
mod events;
mod head;
mod journal;
mod lengths;
mod metrics;
mod names;
#[cfg(test)]
mod plans;
mod plugins;
mod programs;
mod retention;
mod row_bytes;
mod salvage;
mod sinks;
mod sizes;
mod snapshots;
mod statement;
mod steps;
mod store;
mod table;
mod training;
mod workers;

use std::future::Future;
use std::sync::Arc;

pub use access::{TenantRow, TokenRow};
pub use actions::{ActionRow, ServiceRow};
pub use audit::AuditRow;
pub use bindings::{BindingRow, PolicyStateRow};
pub(crate) use bodies::Packed;
pub(crate) use cells::{Cells, Record};
pub use commands::CommandRow;
pub use events::{DecisionRow, EventRow};
pub(crate) use head::Mark;
pub use metrics::SampleRow;
pub use plugins::{PluginHead, PluginRow};
pub use programs::ProgramRow;
pub use sinks::SinkRow;
pub use snapshots::Snapshot;
pub(crate) use statement::{Argument, Statement, direction};
pub use steps::StepRow;
pub(crate) use store::SqlStore;
pub(crate) use table::{Kind, TableRow, Values, names as column_names};
pub use training::TrainingPayload;
pub use workers::WorkerRow;

use crate::condition::Conditions;
use crate::leadership::Term;
use crate::{Batch, Candidate, StoreError, StoreInfo, TEXT_BYTES_MAX};

/// The tenant of the core's rows; there, tenants are part of names.
const TENANT: &str = "default";

/// A database that holds a store.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// Its row type.
    type Row: Record;
    /// Its transaction type.
    type Work: Work<Row = Self::Row>;

    /// Reads the journal's head and the epoch, and locks both until the transaction ends. Columns
    /// `id`, `last_seq`, `epoch`, and `mark`, which identifies the transaction if the database
    /// supports it.
    const HEAD: &'static str;
    /// Reads the epoch as `epoch` and locks it until the transaction ends.
    const EPOCH: &'static str;

    /// Begins a writing transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Work, StoreError>> + Send;

    /// Reads outside of a transaction.
    fn read(
        &self,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Reads rows of a table outside of a transaction.
    fn read_rows<T: TableRow>(
        &self,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<T>, StoreError>> + Send {
        async move { self.read(statement).await?.iter().map(T::of).collect() }
    }

    /// Reads at most one row of a table outside of a transaction.
    fn read_row<T: TableRow>(
        &self,
        statement: Statement,
    ) -> impl Future<Output = Result<Option<T>, StoreError>> + Send {
        async move { self.read(statement).await?.first().map(T::of).transpose() }
    }

    /// Whether the transaction that wrote this batch was committed although the commit got no
    /// answer.
    fn committed(
        &self,
        work: &mut Self::Work,
        mark: &Mark,
        batch: &Batch,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Makes room for events up to `last_seq` and some beyond, given that the journal ends at
    /// `from`. Returns the event before which there is room once the transaction is committed.
    fn make_room(
        &self,
        work: &mut Self::Work,
        from: u64,
        last_seq: u64,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Records the room made by a committed transaction.
    fn keep_room(&self, room: u64);

    /// Removes events and decisions up to `cut` as far as whole partitions can be dropped. Returns
    /// their numbers, and up to which event the rest must be removed row by row.
    fn drop_whole(
        &self,
        work: &mut Self::Work,
        cut: u64,
        last_seq: u64,
    ) -> impl Future<Output = Result<Dropped, StoreError>> + Send;

    /// The event up to which more is removed than up to `cut`, if the database only frees the space
    /// of whole partitions.
    fn whole_cut(&self, cut: u64, last_seq: u64) -> u64;

    /// Tries to lead; returns the epoch if this handle now leads.
    fn campaign(
        &self,
        candidate: &Candidate,
        term: &Term,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Steps down.
    fn resign(&self, term: &Term) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The current time of the clock that `seen_us` is written by.
    fn now_us(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Kind, version, location and size of the store.
    fn info(&self) -> impl Future<Output = Result<StoreInfo, StoreError>> + Send;

    /// The health of the store as seen by this handle.
    fn conditions(&self) -> &Arc<Conditions>;

    /// Closes.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Result of dropping whole partitions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    /// Events.
    pub events: u64,
    /// Decisions.
    pub decisions: u64,
    /// The rest up to this event must be removed row by row.
    pub rest: u64,
    /// Whether more partitions can be dropped.
    pub more: bool,
}

/// A transaction; rolled back unless it is committed.
pub(crate) trait Work: Send {
    /// A row.
    type Row: Record;

    /// Runs a statement; returns the number of changed rows.
    fn execute(
        &mut self,
        statement: Statement,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Runs a statement; returns its rows.
    fn fetch(
        &mut self,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Runs a statement; returns its rows, which are those of a table.
    fn fetch_rows<T: TableRow>(
        &mut self,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<T>, StoreError>> + Send {
        async move { self.fetch(statement).await?.iter().map(T::of).collect() }
    }

    /// Inserts rows. If a row replaces the one with the same key, the last of new rows with the
    /// same key is kept.
    fn insert<T: TableRow>(
        &mut self,
        rows: &[T],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Commits; after an error it may be committed nevertheless.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A number as stored in the database; larger ones become the largest that fits.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns an error if a value exceeds its limit.
pub(crate) fn within(what: &'static str, got: usize, max: usize) -> Result<(), StoreError> {
    if got > max {
        return Err(StoreError::TooLarge { what, got, max });
    }
    Ok(())
}

/// Checks the length of a text, because the databases' own limits cause worse errors.
pub(crate) fn check_text(text: Option<&str>) -> Result<(), StoreError> {
    let length = text.map_or(0, str::len);
    within("a text, in bytes,", length, TEXT_BYTES_MAX)
}
