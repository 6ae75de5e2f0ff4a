//! Samples of metrics over time.

use std::slice;

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TableRow as _, Work as _};
use crate::{MetricHistory, PAGE_ROWS_MAX, PRUNE_ROWS_MAX, SamplePage, StoreError};

table! {
    /// The values of a daemon's metrics at one time.
    pub struct SampleRow in "samples", upsert (at_us) {
        /// Time of the sample.
        at_us: u64,
        /// Values by name, as JSON.
        values_json: String,
    }
}

/// The latest sample of each interval, oldest first.
const PAGE: &str = "WHERE at_us IN \
     (SELECT MAX(at_us) FROM samples WHERE at_us >= $1 AND at_us <= $2 GROUP BY at_us / $3) \
     ORDER BY at_us LIMIT $4";

const PRUNE: &str = "DELETE FROM samples WHERE at_us IN \
     (SELECT at_us FROM samples WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

#[async_trait]
impl<E: Engine> MetricHistory for SqlStore<E> {
    async fn add_sample(&self, row: &SampleRow) -> Result<(), StoreError> {
        writing!(self, "samples", |work| work
            .insert(slice::from_ref(row))
            .await?)
    }

    async fn samples(&self, page: &SamplePage) -> Result<Vec<SampleRow>, StoreError> {
        let query = SampleRow::select(PAGE)
            .number(page.since_us)
            .number(page.until_us)
            .number(page.each_us.max(1))
            .number(page.limit.min(PAGE_ROWS_MAX).into());
        self.engine.read_rows(query).await
    }

    async fn prune_samples(&self, before_us: u64) -> Result<u64, StoreError> {
        let prune = Statement::new(PRUNE).number(before_us);
        let prune = prune.number(PRUNE_ROWS_MAX);
        writing!(self, "samples", |work| work.execute(prune).await?)
    }
}
