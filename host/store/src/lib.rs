//! Durable state: the journal and its projections.
//!
//! [`Store`] is the interface: it joins one trait for each kind of data. It is implemented once,
//! over statements that two databases share: SQLite, in one file or in memory, and PostgreSQL, in a
//! separate schema. This crate does not depend on the core: it stores rows of text and numbers.
//! Times are in microseconds (`_us`), by whichever clock the caller uses. Fields with JSON are text
//! that the store keeps unchanged.
//!
//! What [`Journal::append`] has acknowledged survives a crash of the process and of the machine:
//! every acknowledged batch is one transaction that has been synced to disk. Callers should
//! therefore gather the rows that arrive during one append into the next batch.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use treadle_store::{Batch, EventRow, Location, open};
//!
//! let store = open(&Location::Memory).await.unwrap();
//! let event = EventRow {
//!     seq: store.last_seq().await.unwrap() + 1,
//!     at_us: 17,
//!     kind: "step-arrived".into(),
//!     job: "math".into(),
//!     program: Some("p-1".into()),
//!     body: "{}".into(),
//! };
//! let batch = Batch { events: vec![event.clone()], ..Batch::default() };
//! assert_eq!(store.append(&batch).await.unwrap(), 1);
//! assert_eq!(store.events_after(0, 10).await.unwrap(), vec![event]);
//! # });
//! ```

mod access;
mod bodies;
mod condition;
mod error;
mod examine;
mod follow;
mod leadership;
mod options;
mod page;
mod payload_room;
mod postgres;
mod rows;
mod schema;
mod sql;
mod sqlite;
mod store;

use std::sync::Arc;

pub use access::{AuditPage, Names};
pub use bodies::{BodyRow, PayloadLocation};
pub use condition::{Condition, Failing};
pub use error::StoreError;
pub use examine::{Finding, Grade};
pub use follow::Follower;
pub use leadership::{Candidate, LEASE, LeaderRow, Leadership, SIGN_INTERVAL};
pub use options::{Location, Options, PostgresLocation};
pub use page::{
    ActionPage, DecisionPage, EventPage, ListedPage, Order, ProgramColumn, ProgramCursor,
    ProgramPage, Pruned, Retention, SamplePage, SeqPage, StepColumn, StepCursor, StepPage,
};
pub use payload_room::{NoRoom, PayloadRoom};
pub use rows::{Batch, BindingSet, LengthRow, ListedStep, Placeholder, RefusedRow, RewardRow};
pub use schema::{MigrationRow, SchemaStatus, StoreInfo};
pub use sql::{
    ActionRow, AuditRow, BindingRow, CommandRow, DecisionRow, EventRow, PluginHead, PluginRow,
    PolicyStateRow, ProgramRow, SampleRow, ServiceRow, SinkRow, Snapshot, StepRow, TenantRow,
    TokenRow, TrainingPayload, WorkerRow,
};
pub use store::{
    Access, Actions, Audit, Bindings, Bodies, Cluster, Commands, Journal, MetricHistory, Plugins,
    Programs, Sinks, Store, Training,
};

/// Most rows of all kinds together in one [`Batch`].
pub const BATCH_ROWS_MAX: usize = 200_000;
/// Most rows that one read returns; a greater `limit` is reduced to this.
pub const PAGE_ROWS_MAX: u32 = 10_000;
/// Most rows that are scanned for a page of a selective filter; takes some tenths of a second.
pub const SCANNED_ROWS_MAX: u32 = 50_000;
/// Most rows of one table that one [`Journal::prune`] removes, so that it never blocks writers long.
pub const PRUNE_ROWS_MAX: u64 = 20_000;
/// Mean bytes of an event with its decisions, and 256 for each of these rows; the journal keeps at
/// most this times the events that [`Retention`] allows.
pub const EVENT_BYTES: u64 = 16 << 10;
/// Mean bytes of a row of the audit log; it keeps at most this times its rows.
pub const AUDIT_ROW_BYTES: u64 = 4 << 10;
/// Largest component of a plugin, in bytes.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
/// Most plugins of all tenants: as many as one read returns.
pub const PLUGINS_MAX: u64 = 10_000;
/// Most bytes of the plugins of all tenants, without their compiled forms.
pub const PLUGINS_BYTES_MAX: u64 = 64 << 30;
/// Most bytes that the policy of a binding may store.
pub const POLICY_STATE_BYTES_MAX: usize = 64 << 20;
/// Longest text of a row, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// Largest snapshot, in bytes.
pub const SNAPSHOT_BYTES_MAX: usize = 512 << 20;
/// Snapshots kept; saving one more removes the oldest.
pub const SNAPSHOTS_KEPT: u32 = 2;
/// Most sinks of a store.
pub const SINKS_MAX: usize = 64;
/// Largest number of a gateway.
pub const GATEWAYS_MAX: u32 = (1 << 20) - 1;
/// Largest body of a step, in bytes, before it is compressed.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// The kind of the body that describes an action. Earlier builds also used it for an action's
/// output.
pub const DESCRIPTION: &str = "blob";
/// Most bodies that one [`Bodies::prune_bodies`] removes.
pub const PRUNE_BODIES_MAX: u64 = 1_000;
/// Default schema in a PostgreSQL database.
pub const DEFAULT_SCHEMA: &str = "treadle";
/// Default number of connections to PostgreSQL.
pub const DEFAULT_CONNECTIONS_MAX: u32 = 10;
/// Fewest connections to PostgreSQL that a handle needs: two that write, one that reads, one that
/// holds the leader's lock.
pub const CONNECTIONS_MIN: u32 = 4;

/// Opens the store at a location and brings its schema up to date.
///
/// # Errors
/// [`StoreError::Open`] if it can't be opened, [`StoreError::Schema`] if its schema is not one that
/// this build can bring up to date.
pub async fn open(location: &Location) -> Result<Arc<dyn Store>, StoreError> {
    open_with(location, &Options::default()).await
}

/// Opens the store at a location.
///
/// # Errors
/// As [`open`]; [`StoreError::Pending`] if migrations are pending and the options forbid them.
pub async fn open_with(
    location: &Location,
    options: &Options,
) -> Result<Arc<dyn Store>, StoreError> {
    let blobs = bodies::BlobBackend::open(&options.bodies)?;
    Ok(match location {
        Location::File(path) => {
            let how = sqlite::How {
                migrate: options.migrate,
                create: options.create,
            };
            let engine = sqlite::SqliteEngine::open_file(path, how).await?;
            Arc::new(sql::SqlStore::new(engine, blobs))
        }
        Location::Memory => {
            let engine = sqlite::SqliteEngine::open_memory().await?;
            Arc::new(sql::SqlStore::new(engine, blobs))
        }
        Location::Postgres(location) => {
            let engine = postgres::PostgresEngine::open(location, options.migrate).await?;
            Arc::new(sql::SqlStore::new(engine, blobs))
        }
    })
}

/// The applied and pending migrations of the store at a location. Changes nothing and creates
/// nothing.
///
/// # Errors
/// If the migrations can't be read.
pub async fn schema_status(location: &Location) -> Result<SchemaStatus, StoreError> {
    match location {
        Location::File(path) => sqlite::status_of_file(path).await,
        Location::Memory => Ok(SchemaStatus::default()),
        Location::Postgres(location) => postgres::status_of(location).await,
    }
}

/// Applies the pending migrations of the store at a location; returns the resulting state.
///
/// # Errors
/// As [`open`].
pub async fn migrate(location: &Location) -> Result<SchemaStatus, StoreError> {
    match location {
        Location::File(path) => sqlite::migrate_file(path).await,
        Location::Memory => Ok(SchemaStatus::default()),
        Location::Postgres(location) => postgres::migrate(location).await,
    }
}

/// Checks the store at a location: reachability, permissions, schema and free space. Changes
/// nothing and creates nothing.
pub async fn examine(location: &Location) -> Vec<Finding> {
    match location {
        Location::File(path) => sqlite::examine(path).await,
        Location::Memory => vec![Finding::of(
            "durability",
            Grade::Warn,
            "the store is in memory and ends with the process",
            "set `store.path` or `store.url` to keep anything",
        )],
        Location::Postgres(location) => postgres::examine(location).await,
    }
}
