//! What the two databases have in common: the statements, and the rows that they move.
//!
//! Each file has the statements of one kind of rows, written once for both. What differs (how to
//! connect, how to insert many rows at once, leadership) is behind [`Engine`] and [`Work`].

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
mod what_fits;
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

/// Who owns a row of the core; tenants are part of names there.
const TENANT: &str = "default";

/// A database that a store lives in.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// A row of it.
    type Row: Record;
    /// A transaction of it.
    type Work: Work<Row = Self::Row>;

    /// Reads the journal's head and the epoch, and holds both until the transaction ends. Columns
    /// `id`, `last_seq`, `epoch`, and `mark`, which names the transaction where the database can.
    const HEAD: &'static str;
    /// Reads the epoch as `epoch` and holds it until the transaction ends.
    const EPOCH: &'static str;

    /// Begins a transaction that writes.
    fn begin(&self) -> impl Future<Output = Result<Self::Work, StoreError>> + Send;

    /// Reads outside of a transaction.
    fn read(
        &self,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Whether a transaction whose commit got no answer was committed. It wrote this batch.
    fn committed(
        &self,
        work: &mut Self::Work,
        mark: &Mark,
        batch: &Batch,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Makes room for events up to `last_seq`, where the journal ends at `from` so far, and for
    /// those that will follow. Returns up to where there is room once the transaction is committed.
    fn make_room(
        &self,
        work: &mut Self::Work,
        from: u64,
        last_seq: u64,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// There is room up to here.
    fn keep_room(&self, room: u64);

    /// Removes events and decisions up to this number where that needs no row by row removal: how
    /// many of each, and up to which number the rest is to be removed row by row.
    fn drop_whole(
        &self,
        work: &mut Self::Work,
        cut: u64,
        last_seq: u64,
    ) -> impl Future<Output = Result<Dropped, StoreError>> + Send;

    /// Tries to lead; the epoch if this handle leads now.
    fn campaign(
        &self,
        candidate: &Candidate,
        term: &Term,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Steps down.
    fn resign(&self, term: &Term) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The time by the clock that `seen_us` is written by.
    fn now_us(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// What the store is.
    fn about(&self) -> impl Future<Output = Result<About, StoreError>> + Send;

    /// What this handle has seen of the store.
    fn conditions(&self) -> &Arc<Conditions>;

    /// Closes.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What was removed as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    /// Events.
    pub events: u64,
    /// Decisions.
    pub decisions: u64,
    /// The rest up to here goes row by row.
    pub rest: u64,
    /// Whether there is more that could go as a whole.
    pub more: bool,
}

/// A transaction; undone unless it is committed.
pub(crate) trait Work: Send {
    /// A row.
    type Row: Record;

    /// Runs a statement; how many rows it changed.
    fn execute(
        &mut self,
        statement: Statement,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Runs a statement; its rows.
    fn fetch(
        &mut self,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Inserts rows. If the table has a key they replace those with the same, and of two with the
    /// same the later one stays.
    fn insert<T: Sync>(
        &mut self,
        table: &Table<T>,
        rows: &[T],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends it; on an error it may be committed nevertheless.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A number as the database holds it; what is too large for it is larger than all that it holds.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Checks a bound.
pub(crate) fn within(what: &'static str, got: usize, max: usize) -> Result<(), StoreError> {
    if got > max {
        return Err(StoreError::TooLarge { what, got, max });
    }
    Ok(())
}

/// Checks the length of a text: databases have bounds of their own, at which they break off.
pub(crate) fn check_text(text: Option<&str>) -> Result<(), StoreError> {
    let length = text.map_or(0, str::len);
    within("a text, in bytes,", length, TEXT_BYTES_MAX)
}
