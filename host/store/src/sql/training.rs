//! Payloads of training runs.

use async_trait::async_trait;
use bytes::Bytes;

use super::row_bytes::bytes_of;
use super::store::writing;
use super::table::table;
use super::{Cells, Engine, SqlStore, Statement, TableRow as _, Work, names, within};
use crate::{BODY_BYTES_MAX, Names, PAGE_ROWS_MAX, StoreError, Training};

table! {
    /// A payload of a training run.
    pub struct TrainingPayload in "training_payloads", upsert (job, name) {
        /// The job.
        job: String,
        /// Its name within the job.
        name: String,
        /// When it was stored.
        at_us: u64,
        /// Its size.
        size_bytes: u64,
        /// Its bytes.
        body: Vec<u8>,
    }
}

/// Names in a statement, which may have some thousands of arguments.
const NAMES_MAX: usize = 500;

const LISTED: &str = "SELECT name FROM training_payloads WHERE job = $1 AND at_us < $2 AND name > $3 \
     ORDER BY name LIMIT $4";

const BODIES: &str = "SELECT name, body FROM training_payloads WHERE job = $1";

const SIZES: &str = "SELECT name, size_bytes FROM training_payloads WHERE job = $1";

const BYTES: &str =
    "SELECT CAST(SUM(size_bytes) AS BIGINT) AS bytes FROM training_payloads WHERE TRUE";

const REMOVE: &str = "DELETE FROM training_payloads WHERE job = $1 AND at_us < $2";

#[async_trait]
impl<E: Engine> Training for SqlStore<E> {
    async fn put_payloads(&self, payloads: &[TrainingPayload]) -> Result<(), StoreError> {
        writing!(self, "payloads of training", |work| {
            for payload in payloads {
                let size = payload.body.len();
                within("a payload, in bytes,", size, BODY_BYTES_MAX)?;
            }
            work.insert(payloads).await?;
        })
    }

    async fn payloads(
        &self,
        job: &str,
        names: &[String],
    ) -> Result<Vec<TrainingPayload>, StoreError> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_MAX) {
            let mut query = TrainingPayload::select("WHERE job = $1").text(job);
            push_one_of(&mut query, names);
            query.push(" ORDER BY name");
            found.extend(self.engine.read_rows::<TrainingPayload>(query).await?);
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn payload_bodies(
        &self,
        job: &str,
        names: &[String],
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_MAX) {
            let mut query = Statement::new(BODIES).text(job);
            push_one_of(&mut query, names);
            for row in self.engine.read(query).await? {
                let (table, key) = (TrainingPayload::TABLE, &["name"]);
                let cells = Cells {
                    table,
                    key,
                    row: &row,
                };
                let name = cells.text("name")?;
                found.push((name, bytes_of(table, key, row, "body")?));
            }
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    async fn payload_sizes(
        &self,
        job: &str,
        names: &[String],
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_MAX) {
            let mut query = Statement::new(SIZES).text(job);
            push_one_of(&mut query, names);
            for row in &self.engine.read(query).await? {
                let cells = Cells {
                    table: TrainingPayload::TABLE,
                    key: &["name"],
                    row,
                };
                found.push((cells.text("name")?, cells.number("size_bytes")?));
            }
        }
        found.sort();
        Ok(found)
    }

    async fn payload_names(
        &self,
        job: &str,
        before_us: u64,
        after: &str,
    ) -> Result<Vec<String>, StoreError> {
        let query = Statement::new(LISTED).text(job).number(before_us);
        let query = query.text(after).number(PAGE_ROWS_MAX.into());
        let rows = self.engine.read(query).await?;
        let name = |row| {
            let cells = Cells {
                table: TrainingPayload::TABLE,
                key: &["name"],
                row,
            };
            cells.text("name")
        };
        rows.iter().map(name).collect()
    }

    async fn payload_bytes(&self, jobs: &Names) -> Result<u64, StoreError> {
        let mut query = Statement::new(BYTES);
        names::push(&mut query, "job", jobs);
        let rows = self.engine.read(query).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let cells = Cells {
            table: TrainingPayload::TABLE,
            key: &[],
            row,
        };
        Ok(cells.maybe_number("bytes")?.unwrap_or(0))
    }

    async fn remove_payloads(
        &self,
        job: &str,
        names: &[String],
        before_us: u64,
    ) -> Result<u64, StoreError> {
        writing!(self, "payloads of training", |work| {
            let mut removed = 0;
            for names in names.chunks(NAMES_MAX) {
                let mut query = Statement::new(REMOVE).text(job).number(before_us);
                push_one_of(&mut query, names);
                removed += work.execute(query).await?;
            }
            removed
        })
    }
}

/// Adds the condition that `name` is one of these.
fn push_one_of(query: &mut Statement, names: &[String]) {
    query.push(" AND name IN (");
    for (index, name) in names.iter().enumerate() {
        query.push(if index == 0 { "" } else { ", " });
        query.push_text(name);
    }
    query.push(")");
}
