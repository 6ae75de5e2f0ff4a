//! The code that both databases share: statements, and the rows that they read and write.
//!
//! Each file has the statements for one kind of row, written once for both databases. The
//! differences (connections, bulk inserts, leadership) are behind [`Engine`] and [`Work`].

mod actions;
mod append;
mod audit;
mod bindings;
mod bodies;
mod cells;
mod commands;
mod gateways;
mod head;
mod journal;
mod keys;
mod lengths;
mod names;
#[cfg(test)]
mod plans;
mod plugins;
mod programs;
mod retention;
mod salvage;
mod samples;
mod services;
mod sinks;
mod snapshots;
mod statement;
mod steps;
mod store;
mod table;
mod tenants;
mod tokens;
mod weights;
mod workers;

use std::future::Future;
use std::sync::Arc;

pub(crate) use cells::{Cells, Record};
pub(crate) use head::Mark;
pub(crate) use statement::{Argument, Statement, direction};
pub(crate) use store::SqlStore;
pub(crate) use table::{Kind, Table, Values};

use crate::condition::Conditions;
use crate::leadership::Term;
use crate::{About, Batch, Candidate, StoreError, TEXT_BYTES_MAX};

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
    fn about(&self) -> impl Future<Output = Result<About, StoreError>> + Send;

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

    /// Inserts rows. If the table has a key, they replace rows with the same key, and of new rows
    /// with the same key the last is kept.
    fn insert<T: Sync>(
        &mut self,
        table: &Table<T>,
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
