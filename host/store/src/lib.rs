//! Durable state: the journal and its projections.
//!
//! [`Store`] is the interface. It is implemented once, over statements that two databases share:
//! SQLite, in one file or in memory, and PostgreSQL, in a separate schema. This crate does not
//! depend on the core: it stores rows of text and numbers.
//!
//! What [`Store::append`] has acknowledged survives a crash of the process and of the machine:
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
mod cluster;
mod condition;
mod error;
mod examine;
mod leadership;
mod options;
mod page;
mod postgres;
mod rows;
mod schema;
mod sql;
mod sqlite;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

pub use access::{AuditPage, AuditRow, Names, TenantRow, TokenRow};
pub use bodies::PayloadLocation;
pub use cluster::{BodyRow, CommandRow, SinkRow};
pub use condition::{Condition, Failing};
pub use error::StoreError;
pub use examine::{Finding, Grade};
pub use leadership::{Candidate, LEASE, LeaderRow, Leadership, SIGN_INTERVAL};
pub use options::{Location, Options, PostgresLocation};
pub use page::{
    ActionPage, DecisionPage, EventPage, ListedPage, Order, ProgramColumn, ProgramCursor,
    ProgramPage, Pruned, Retention, SamplePage, SeqPage, StepColumn, StepCursor, StepPage,
};
pub use rows::{
    ActionRow, Batch, BindingRow, BindingSet, DecisionRow, EventRow, LengthRow, ListedStep,
    Placeholder, PluginHead, PluginRow, PolicyStateRow, ProgramRow, RefusedRow, RewardRow,
    SampleRow, ServiceRow, Snapshot, StepRow, WeightRow, WorkerRow,
};
pub use schema::{About, MigrationRow, SchemaStatus};

/// Most rows of all kinds together in one [`Batch`].
pub const BATCH_ROWS_MAX: usize = 200_000;
/// Most rows that one read returns; a greater `limit` is reduced to this.
pub const PAGE_ROWS_MAX: u32 = 10_000;
/// Most rows that are scanned for a page of a selective filter; takes some tenths of a second.
pub const SCANNED_ROWS_MAX: u32 = 50_000;
/// Most rows of one table that one [`Store::prune`] removes, so that it never blocks writers long.
pub const PRUNE_ROWS_MAX: u64 = 20_000;
/// Largest component of a plugin, in bytes.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
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
/// Most bodies that one [`Store::prune_bodies`] removes.
pub const PRUNE_BODIES_MAX: u64 = 1_000;
/// Default schema in a PostgreSQL database.
pub const DEFAULT_SCHEMA: &str = "treadle";
/// Default number of connections to PostgreSQL.
pub const DEFAULT_CONNECTIONS_MAX: u32 = 10;
/// Fewest connections to PostgreSQL that a handle needs: two that write, one that reads, one that
/// holds the leader's lock.
pub const CONNECTIONS_MIN: u32 = 4;

/// The return type of the methods of [`Store`]: a boxed future, so that the trait is object-safe.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The journal, its projections, the plugins and their bindings.
///
/// All sequence numbers start at 1 and have no gaps; 0 means "nothing yet".
///
/// If several daemons share a store, one leads ([`Store::campaign`]). Writes of any other handle
/// fail with [`StoreError::Fenced`], except those of [`Store::gateway_id`] and, from handles that
/// never led, of [`Store::put_bodies`], [`Store::touch_tokens`] and [`Store::add_audit`]. Until a
/// store has had a leader, all handles may write.
pub trait Store: Send + Sync {
    /// Writes a batch as one transaction and returns the last sequence number of the journal.
    ///
    /// On an error that names a reason, nothing of the batch is stored. If the connection broke
    /// during the commit, the batch may be stored: repeating the same batch on the same handle
    /// detects that, and succeeds without storing it twice.
    ///
    /// # Errors
    /// [`StoreError::Gap`] if the events don't continue the journal one by one,
    /// [`StoreError::Orphan`] if a step's program is neither stored nor in the batch,
    /// [`StoreError::TooLarge`] past [`BATCH_ROWS_MAX`].
    fn append<'a>(&'a self, batch: &'a Batch) -> Answer<'a, u64>;

    /// Writes the rows of a batch that can be stored as one transaction, and returns the others.
    /// For batches that [`Store::append`] refused with an error that [`StoreError::is_permanent`].
    ///
    /// A refused row is left out. A refused event is replaced in the journal by its `placeholder`
    /// with the same number, because the journal has no gaps. The batch may exceed
    /// [`BATCH_ROWS_MAX`].
    ///
    /// # Errors
    /// [`StoreError::Gap`] as for [`Store::append`]; otherwise only temporary errors.
    fn append_what_fits<'a>(
        &'a self,
        batch: &'a Batch,
        placeholder: Placeholder,
    ) -> Answer<'a, Vec<RefusedRow>>;

    /// Sequence number of the last event that was ever appended; 0 for an empty journal.
    fn last_seq(&self) -> Answer<'_, u64>;

    /// Up to `limit` events with a sequence number greater than `seq`, oldest first.
    fn events_after(&self, seq: u64, limit: u32) -> Answer<'_, Vec<EventRow>>;

    /// Events that match a filter.
    fn events_page<'a>(&'a self, page: &'a EventPage) -> Answer<'a, Vec<EventRow>>;

    /// Decisions in the order in which they were taken, of one program or of all.
    fn decisions<'a>(&'a self, page: &'a DecisionPage) -> Answer<'a, Vec<DecisionRow>>;

    /// The event of the last of the first `rows` decisions that a query for this page scans,
    /// whether they match or not. `None` if there are fewer, or if the matching ones are found by
    /// an index.
    fn decisions_reach<'a>(&'a self, page: &'a DecisionPage, rows: u32) -> Answer<'a, Option<u64>>;

    /// One program; `None` if it is unknown or was pruned.
    fn program<'a>(&'a self, program: &'a str) -> Answer<'a, Option<ProgramRow>>;

    /// Programs that match.
    fn programs<'a>(&'a self, page: &'a ProgramPage) -> Answer<'a, Vec<ProgramRow>>;

    /// One action; `None` if it is unknown or was pruned.
    fn action(&self, action: u64) -> Answer<'_, Option<ActionRow>>;

    /// Actions that match, newest first.
    fn actions<'a>(&'a self, page: &'a ActionPage) -> Answer<'a, Vec<ActionRow>>;

    /// Adds or replaces a service that actions may use.
    fn put_service<'a>(&'a self, service: &'a ServiceRow) -> Answer<'a, ()>;

    /// All services, by name.
    fn services(&self) -> Answer<'_, Vec<ServiceRow>>;

    /// Lengths of the newest ended programs of a job, newest first, without those that had no step.
    fn lengths<'a>(&'a self, job: &'a str, limit: u32) -> Answer<'a, Vec<LengthRow>>;

    /// Adds a sample, or replaces the one of the same time.
    fn add_sample<'a>(&'a self, row: &'a SampleRow) -> Answer<'a, ()>;

    /// Samples within a time range.
    fn samples<'a>(&'a self, page: &'a SamplePage) -> Answer<'a, Vec<SampleRow>>;

    /// Removes samples from before a time, a bounded number at a time; returns their number.
    fn prune_samples(&self, before_us: u64) -> Answer<'_, u64>;

    /// Steps of one program, by rising number.
    fn steps<'a>(&'a self, program: &'a str, page: &'a StepPage) -> Answer<'a, Vec<StepRow>>;

    /// Ended steps, of one program or of all, together with data of their programs.
    fn listed_steps<'a>(&'a self, page: &'a ListedPage) -> Answer<'a, Vec<ListedStep>>;

    /// When the last of the first `rows` steps that a query for this page scans ended, whether they
    /// match or not. `None` if there are fewer, or if all rows read match. If steps are sorted by
    /// duration, the newest ones are scanned.
    fn steps_reach<'a>(&'a self, page: &'a ListedPage, rows: u32) -> Answer<'a, Option<u64>>;

    /// All workers, by name.
    fn workers(&self) -> Answer<'_, Vec<WorkerRow>>;

    /// Stores a plugin. `true` if it is new, `false` if its digest was there already.
    ///
    /// # Errors
    /// [`StoreError::Immutable`] if the digest is there with other bytes,
    /// [`StoreError::TooLarge`] past [`COMPONENT_BYTES_MAX`].
    fn put_plugin<'a>(&'a self, plugin: &'a PluginRow) -> Answer<'a, bool>;

    /// One plugin with its component; `None` if the digest is unknown.
    fn plugin<'a>(&'a self, digest: &'a str) -> Answer<'a, Option<PluginRow>>;

    /// All plugins without their components, newest first.
    fn plugins(&self) -> Answer<'_, Vec<PluginHead>>;

    /// All bindings, by job, world and role.
    fn bindings(&self) -> Answer<'_, Vec<BindingRow>>;

    /// Adds or replaces the state stored by the policy of a binding.
    fn put_policy_state<'a>(&'a self, state: &'a PolicyStateRow) -> Answer<'a, ()>;

    /// The states stored by the policies of all bindings, by job and world.
    fn policy_states(&self) -> Answer<'_, Vec<PolicyStateRow>>;

    /// Adds or replaces a tenant.
    fn put_tenant<'a>(&'a self, tenant: &'a TenantRow) -> Answer<'a, ()>;

    /// All tenants, by name.
    fn tenants(&self) -> Answer<'_, Vec<TenantRow>>;

    /// Adds or replaces an API token.
    fn put_token<'a>(&'a self, token: &'a TokenRow) -> Answer<'a, ()>;

    /// All API tokens, including those that are no longer valid, newest first.
    fn tokens(&self) -> Answer<'_, Vec<TokenRow>>;

    /// Records when tokens, by their ids, were last used.
    fn touch_tokens<'a>(&'a self, uses: &'a [(String, u64)]) -> Answer<'a, ()>;

    /// Removes tokens that were revoked or expired before this time; returns their number.
    fn prune_tokens(&self, ended_before_us: u64) -> Answer<'_, u64>;

    /// Adds a plugin to a tenant. `true` if the tenant did not have it before.
    fn claim_plugin<'a>(&'a self, tenant: &'a str, digest: &'a str, at_us: u64)
    -> Answer<'a, bool>;

    /// Digests of a tenant's plugins.
    fn claimed_plugins<'a>(&'a self, tenant: &'a str) -> Answer<'a, Vec<String>>;

    /// Adds rows to the audit log in one transaction; `id` is chosen by the store.
    fn add_audit<'a>(&'a self, rows: &'a [AuditRow]) -> Answer<'a, ()>;

    /// Rows of the audit log that match.
    fn audit<'a>(&'a self, page: &'a AuditPage) -> Answer<'a, Vec<AuditRow>>;

    /// Removes the oldest rows of the audit log beyond the newest `keep`, at most
    /// [`PRUNE_ROWS_MAX`]; returns their number.
    fn prune_audit(&self, keep: u64) -> Answer<'_, u64>;

    /// Keeps the state of the core as it was after event `snapshot.seq`; the newest
    /// [`SNAPSHOTS_KEPT`] stay.
    ///
    /// # Errors
    /// [`StoreError::Ahead`] if the journal does not reach that event,
    /// [`StoreError::TooLarge`] past [`SNAPSHOT_BYTES_MAX`].
    fn save_snapshot<'a>(&'a self, snapshot: &'a Snapshot) -> Answer<'a, ()>;

    /// The newest snapshot; recovery replays the events after it.
    fn latest_snapshot(&self) -> Answer<'_, Option<Snapshot>>;

    /// Removes rows past their retention, at most [`PRUNE_ROWS_MAX`] rows of a table; call again
    /// while [`Pruned::more`].
    ///
    /// Events and decisions after the newest snapshot are always kept, and all of them if there is
    /// no snapshot: recovery needs them. Events that a sink has not received are kept too, within a
    /// limit. A caller that recovers in another way saves an empty snapshot.
    fn prune<'a>(&'a self, retention: &'a Retention) -> Answer<'a, Pruned>;

    /// The last event that a sink has received; 0 for none.
    fn sink_cursor<'a>(&'a self, sink: &'a str) -> Answer<'a, u64>;

    /// Records that a sink has received all events up to this one. Never goes back.
    ///
    /// # Errors
    /// [`StoreError::Ahead`] if the journal does not reach that event, [`StoreError::TooLarge`]
    /// past
    /// [`SINKS_MAX`].
    fn advance_sink<'a>(&'a self, sink: &'a str, seq: u64) -> Answer<'a, ()>;

    /// All sinks, by name.
    fn sinks(&self) -> Answer<'_, Vec<SinkRow>>;

    /// Removes a sink, so that no events are kept for it. `true` if it existed.
    fn drop_sink<'a>(&'a self, sink: &'a str) -> Answer<'a, bool>;

    /// Records that a command was received. `true` if it is new; otherwise nothing changes.
    fn note_command<'a>(&'a self, command: &'a CommandRow) -> Answer<'a, bool>;

    /// One command; `None` if it is unknown or was pruned.
    fn command<'a>(&'a self, id: &'a str) -> Answer<'a, Option<CommandRow>>;

    /// Sets the result of a command. `true` if the command is stored.
    fn settle_command<'a>(&'a self, id: &'a str, outcome: &'a str) -> Answer<'a, bool>;

    /// Removes commands received before this time, at most [`PRUNE_ROWS_MAX`]; returns their
    /// number.
    fn prune_commands(&self, before_us: u64) -> Answer<'_, u64>;

    /// The number of a gateway: 1 or more, always the same for the same name.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`GATEWAYS_MAX`].
    fn gateway_id<'a>(&'a self, name: &'a str) -> Answer<'a, u32>;

    /// A secret number of this store, by its purpose: `fresh` on the first call, the same ever
    /// after.
    fn key<'a>(&'a self, name: &'a str, fresh: u64) -> Answer<'a, u64>;

    /// Adds or replaces bodies of steps, compressed.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`BODY_BYTES_MAX`].
    fn put_bodies<'a>(&'a self, bodies: &'a [BodyRow]) -> Answer<'a, ()>;

    /// All bodies of a step, by kind.
    fn bodies<'a>(&'a self, program: &'a str, step: u64) -> Answer<'a, Vec<BodyRow>>;

    /// Removes bodies received before this time, at most [`PRUNE_BODIES_MAX`]; returns their
    /// number.
    fn prune_bodies(&self, before_us: u64) -> Answer<'_, u64>;

    /// Total size of the bodies of these programs, before compression.
    fn body_bytes<'a>(&'a self, programs: &'a Names) -> Answer<'a, u64>;

    /// Removes the oldest bodies of these programs until `bytes` bytes are freed, at most
    /// [`PRUNE_BODIES_MAX`]; returns their number. Descriptions of actions ([`DESCRIPTION`]) are
    /// removed only if they are older than an hour and than all actions that have not ended.
    fn shed_bodies<'a>(&'a self, programs: &'a Names, bytes: u64) -> Answer<'a, u64>;

    /// Tries to lead. `Some(epoch)` if this handle now leads, `None` if another one does.
    ///
    /// Each term has its own epoch, greater than all before. The next candidate replaces a leader
    /// that sends no heartbeat for [`LEASE`]. A leader continues after a restart of its database,
    /// unless another candidate was faster.
    fn campaign<'a>(&'a self, candidate: &'a Candidate) -> Answer<'a, Option<u64>>;

    /// The current or last leader; `None` if there never was one or the last one resigned.
    fn leader(&self) -> Answer<'_, Option<LeaderRow>>;

    /// Steps down, so that the next candidate does not have to wait.
    fn resign(&self) -> Answer<'_, ()>;

    /// This handle's leadership state, and a notice of each change.
    fn leadership(&self) -> watch::Receiver<Leadership>;

    /// The health of the store as seen by this handle.
    fn condition(&self) -> Condition;

    /// Notifies with the reason when the store is lost: its database file was deleted, replaced or
    /// truncated. Nothing is read or written from then on.
    fn lost(&self) -> watch::Receiver<Option<Arc<str>>>;

    /// Kind, version, location and size of the store.
    fn about(&self) -> Answer<'_, About>;

    /// Resigns, writes what is pending and closes; later calls fail. Dropping loses nothing either.
    fn close(&self) -> Answer<'_, ()>;
}

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
