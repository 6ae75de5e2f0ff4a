//! Workers.

use super::table::table;
use super::{Engine, TENANT, TableRow as _};
use crate::{PAGE_ROWS_MAX, StoreError};

table! {
    /// An inference engine in its last known state.
    pub struct WorkerRow in "workers" with tenant = TENANT, upsert (worker) {
        /// Its name.
        worker: String,
        /// Where it listens.
        url: String,
        /// Kind of engine.
        kind: String,
        /// Its health.
        status: String,
        /// Tokens that fit in its cache, if known.
        capacity_tokens: Option<u64>,
        /// Tokens of the programs that are placed on it.
        used_tokens: u64,
        /// When it joined.
        added_at_us: u64,
        /// When it last changed.
        updated_at_us: u64,
    }
}

/// All workers, by name.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<WorkerRow>, StoreError> {
    let all = WorkerRow::select("WHERE tenant = $1 ORDER BY worker LIMIT $2");
    let all = all.text(TENANT).number(PAGE_ROWS_MAX.into());
    engine.read_rows(all).await
}
