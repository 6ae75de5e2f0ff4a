//! [`Store`] in one SQLite file, or in memory.
//!
//! One connection writes and a few read. The file is in WAL mode, so that readers see the last
//! committed state and wait for nobody, and every commit is synced to the disk.

mod audit;
mod bindings;
mod cells;
mod insert;
mod journal;
mod names;
mod plugins;
mod programs;
mod retention;
mod snapshots;
mod steps;
mod tenants;
mod tokens;
mod workers;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::{
    Answer, AuditPage, AuditRow, BATCH_ROWS_MAX, Batch, BindingRow, DecisionRow, EventPage,
    EventRow, Location, Order, PluginHead, PluginRow, PolicyStateRow, ProgramPage, ProgramRow,
    Pruned, Retention, SeqPage, Snapshot, StepPage, StepRow, Store, StoreError, TenantRow,
    TokenRow, WorkerRow,
};

/// Connections that read.
const READERS: u32 = 4;
/// How long to wait for another process that holds the file, before it is an error.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Who owns a row, until rows of several tenants come.
const TENANT: &str = "default";

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// A store in one SQLite file, or in memory.
#[derive(Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteStore {
    /// Opens the store and brings its schema up to date.
    ///
    /// # Errors
    /// See [`crate::open`].
    pub async fn open(location: &Location) -> Result<Self, StoreError> {
        match location {
            Location::File(path) => Self::open_file(path).await,
            Location::Memory => Self::open_memory().await,
        }
    }

    async fn open_file(path: &Path) -> Result<Self, StoreError> {
        let location = path.display().to_string();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder {
                location: location.clone(),
                source,
            })?;
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .disable_statement_logging();
        let writer = single(options.clone(), &location).await?;
        migrate(&writer, &location).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .test_before_acquire(false)
            .connect_with(options.pragma("query_only", "ON"))
            .await
            .map_err(|source| StoreError::Open { location, source })?;
        Ok(Self { writer, readers })
    }

    /// One connection for all: a second one would see another, empty database.
    async fn open_memory() -> Result<Self, StoreError> {
        let location = "memory".to_owned();
        let options = SqliteConnectOptions::from_str("sqlite::memory:")
            .map_err(|source| StoreError::Open {
                location: location.clone(),
                source,
            })?
            .foreign_keys(true)
            .disable_statement_logging();
        let writer = single(options, &location).await?;
        migrate(&writer, &location).await?;
        let readers = writer.clone();
        Ok(Self { writer, readers })
    }

    async fn write(&self, batch: &Batch) -> Result<u64, StoreError> {
        within("the batch, in rows,", batch.len(), BATCH_ROWS_MAX)?;
        if batch.is_empty() {
            return journal::last_seq(&self.readers).await;
        }
        // Immediate: the journal's head is read under the lock that the write needs anyway.
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let last_seq = journal::add_events(&mut transaction, &batch.events).await?;
        journal::add_decisions(&mut transaction, &batch.decisions).await?;
        programs::put(&mut transaction, &batch.programs).await?;
        workers::put(&mut transaction, &batch.workers).await?;
        steps::put(&mut transaction, &batch.steps).await?;
        transaction.commit().await?;
        Ok(last_seq)
    }
}

async fn single(options: SqliteConnectOptions, location: &str) -> Result<SqlitePool, StoreError> {
    SqlitePoolOptions::new()
        .max_connections(1)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .map_err(|source| StoreError::Open {
            location: location.to_owned(),
            source,
        })
}

async fn migrate(writer: &SqlitePool, location: &str) -> Result<(), StoreError> {
    MIGRATIONS
        .run(writer)
        .await
        .map_err(|source| StoreError::Schema {
            location: location.to_owned(),
            source,
        })
}

fn within(what: &'static str, got: usize, max: usize) -> Result<(), StoreError> {
    if got > max {
        return Err(StoreError::TooLarge { what, got, max });
    }
    Ok(())
}

impl Store for SqliteStore {
    fn append<'a>(&'a self, batch: &'a Batch) -> Answer<'a, u64> {
        Box::pin(async move {
            self.write(batch).await.map_err(|error| match error {
                // Steps have the only foreign key.
                StoreError::Database(sqlx::Error::Database(inner))
                    if inner.is_foreign_key_violation() =>
                {
                    StoreError::Orphan
                }
                other => other,
            })
        })
    }

    fn last_seq(&self) -> Answer<'_, u64> {
        Box::pin(journal::last_seq(&self.readers))
    }

    fn events_after(&self, seq: u64, limit: u32) -> Answer<'_, Vec<EventRow>> {
        let page = EventPage {
            range: SeqPage {
                after: Some(seq),
                before: None,
                order: Order::OldestFirst,
                limit,
            },
            ..EventPage::default()
        };
        Box::pin(async move { journal::events(&self.readers, &page).await })
    }

    fn events_page<'a>(&'a self, page: &'a EventPage) -> Answer<'a, Vec<EventRow>> {
        Box::pin(journal::events(&self.readers, page))
    }

    fn decisions<'a>(
        &'a self,
        program: Option<&'a str>,
        page: &'a SeqPage,
    ) -> Answer<'a, Vec<DecisionRow>> {
        Box::pin(journal::decisions(&self.readers, program, page))
    }

    fn program<'a>(&'a self, program: &'a str) -> Answer<'a, Option<ProgramRow>> {
        Box::pin(programs::get(&self.readers, program))
    }

    fn programs<'a>(&'a self, page: &'a ProgramPage) -> Answer<'a, Vec<ProgramRow>> {
        Box::pin(programs::page(&self.readers, page))
    }

    fn steps<'a>(&'a self, program: &'a str, page: &'a StepPage) -> Answer<'a, Vec<StepRow>> {
        Box::pin(steps::page(&self.readers, program, page))
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerRow>> {
        Box::pin(workers::all(&self.readers))
    }

    fn put_plugin<'a>(&'a self, plugin: &'a PluginRow) -> Answer<'a, bool> {
        Box::pin(plugins::put(&self.writer, plugin))
    }

    fn plugin<'a>(&'a self, digest: &'a str) -> Answer<'a, Option<PluginRow>> {
        Box::pin(plugins::get(&self.readers, digest))
    }

    fn plugins(&self) -> Answer<'_, Vec<PluginHead>> {
        Box::pin(plugins::all(&self.readers))
    }

    fn put_bindings<'a>(
        &'a self,
        job: &'a str,
        world: &'a str,
        roles: &'a [BindingRow],
    ) -> Answer<'a, ()> {
        Box::pin(bindings::put(&self.writer, job, world, roles))
    }

    fn bindings(&self) -> Answer<'_, Vec<BindingRow>> {
        Box::pin(bindings::all(&self.readers))
    }

    fn put_policy_state<'a>(&'a self, state: &'a PolicyStateRow) -> Answer<'a, ()> {
        Box::pin(bindings::put_state(&self.writer, state))
    }

    fn policy_states(&self) -> Answer<'_, Vec<PolicyStateRow>> {
        Box::pin(bindings::states(&self.readers))
    }

    fn put_tenant<'a>(&'a self, tenant: &'a TenantRow) -> Answer<'a, ()> {
        Box::pin(tenants::put(&self.writer, tenant))
    }

    fn tenants(&self) -> Answer<'_, Vec<TenantRow>> {
        Box::pin(tenants::all(&self.readers))
    }

    fn put_token<'a>(&'a self, token: &'a TokenRow) -> Answer<'a, ()> {
        Box::pin(tokens::put(&self.writer, token))
    }

    fn tokens(&self) -> Answer<'_, Vec<TokenRow>> {
        Box::pin(tokens::all(&self.readers))
    }

    fn touch_tokens<'a>(&'a self, uses: &'a [(String, u64)]) -> Answer<'a, ()> {
        Box::pin(tokens::touch(&self.writer, uses))
    }

    fn prune_tokens(&self, ended_before_us: u64) -> Answer<'_, u64> {
        Box::pin(tokens::prune(&self.writer, ended_before_us))
    }

    fn claim_plugin<'a>(
        &'a self,
        tenant: &'a str,
        digest: &'a str,
        at_us: u64,
    ) -> Answer<'a, bool> {
        Box::pin(tenants::claim_plugin(&self.writer, tenant, digest, at_us))
    }

    fn claimed_plugins<'a>(&'a self, tenant: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(tenants::claimed_plugins(&self.readers, tenant))
    }

    fn add_audit<'a>(&'a self, rows: &'a [AuditRow]) -> Answer<'a, ()> {
        Box::pin(audit::add(&self.writer, rows))
    }

    fn audit<'a>(&'a self, page: &'a AuditPage) -> Answer<'a, Vec<AuditRow>> {
        Box::pin(audit::page(&self.readers, page))
    }

    fn prune_audit(&self, keep: u64) -> Answer<'_, u64> {
        Box::pin(audit::prune(&self.writer, keep))
    }

    fn save_snapshot<'a>(&'a self, snapshot: &'a Snapshot) -> Answer<'a, ()> {
        Box::pin(snapshots::save(&self.writer, snapshot))
    }

    fn latest_snapshot(&self) -> Answer<'_, Option<Snapshot>> {
        Box::pin(snapshots::latest(&self.readers))
    }

    fn prune<'a>(&'a self, retention: &'a Retention) -> Answer<'a, Pruned> {
        Box::pin(retention::prune(&self.writer, retention))
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.readers.close().await;
            self.writer.close().await;
            Ok(())
        })
    }
}
