//! Durable state: the journal and the projections that are asked for by name.
//!
//! [`Store`] is the interface. It is implemented once, over statements that two databases share:
//! SQLite, in one file or in memory, and PostgreSQL, in a schema of its own. This crate knows
//! nothing of the core: it stores rows of words and numbers that others fill.
//!
//! What [`Store::append`] has acknowledged survives the death of the process and of the machine:
//! every acknowledged batch is one transaction that has reached the disk. So the caller gathers
//! what arrives while one batch is being written and hands it over as the next one.
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
/// Most rows that one read returns; a greater `limit` is taken as this one.
pub const PAGE_ROWS_MAX: u32 = 10_000;
/// Most rows among which a page is looked for that few may match: some tenths of a second.
pub const SCANNED_ROWS_MAX: u32 = 50_000;
/// Most rows of one table that one [`Store::prune`] removes, so that it never blocks writers long.
pub const PRUNE_ROWS_MAX: u64 = 20_000;
/// Largest component of a plugin, in bytes.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
/// Most that the policy of a binding may have stored, in bytes.
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
/// The kind of a body that describes an action, or, written by earlier builds, is its output.
pub const DESCRIPTION: &str = "blob";
/// Most bodies that one [`Store::prune_bodies`] removes.
pub const PRUNE_BODIES_MAX: u64 = 1_000;
/// Schema of a PostgreSQL database, if no other is named.
pub const DEFAULT_SCHEMA: &str = "treadle";
/// Connections to PostgreSQL, if no other number is named.
pub const DEFAULT_CONNECTIONS_MAX: u32 = 10;
/// Fewest connections to PostgreSQL that a handle can do with: two that write, one that reads, one
/// that holds the leader's lock.
pub const CONNECTIONS_MIN: u32 = 4;

/// What a method of [`Store`] returns: a boxed future, so that the trait can be used as an object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The journal, its projections, the plugins and their bindings.
///
/// All sequence numbers start at 1 and have no gaps; 0 means "nothing yet".
///
/// Where several daemons share a store, one leads ([`Store::campaign`]). Writes of any other handle
/// fail with [`StoreError::Fenced`], except those of [`Store::gateway_id`] and, from handles that
/// never led, of [`Store::put_bodies`], [`Store::touch_tokens`] and [`Store::add_audit`]. A store
/// without any leader so far can be written by all.
pub trait Store: Send + Sync {
    /// Writes a batch as one transaction and returns the last sequence number of the journal.
    ///
    /// On an error that names a reason nothing of the batch is stored. If the connection broke while
    /// the batch was being committed it may be stored: the same batch again, on the same handle,
    /// finds out and succeeds without storing it twice.
    ///
    /// # Errors
    /// [`StoreError::Gap`] if the events don't continue the journal one by one,
    /// [`StoreError::Orphan`] if a step's program is neither stored nor in the batch,
    /// [`StoreError::TooLarge`] past [`BATCH_ROWS_MAX`].
    fn append<'a>(&'a self, batch: &'a Batch) -> Answer<'a, u64>;

    /// Writes what can be stored of a batch as one transaction, and returns what can't. It is for a
    /// batch that [`Store::append`] refused with an error that [`StoreError::is_permanent`].
    ///
    /// A row that can't be stored is left out. An event that can't is replaced in the journal by
    /// its `placeholder`, under the same number: it has no gaps. Rows may be more than
    /// [`BATCH_ROWS_MAX`].
    ///
    /// # Errors
    /// [`StoreError::Gap`] as for [`Store::append`]; otherwise those that pass.
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

    /// How far the first `rows` decisions go among which a page is looked for, whether they match
    /// or not: the event of the last of them. `None` if there are fewer, or if an index finds those
    /// that match.
    fn decisions_reach<'a>(&'a self, page: &'a DecisionPage, rows: u32) -> Answer<'a, Option<u64>>;

    /// One program; `None` if it is unknown or was pruned.
    fn program<'a>(&'a self, program: &'a str) -> Answer<'a, Option<ProgramRow>>;

    /// Programs that match.
    fn programs<'a>(&'a self, page: &'a ProgramPage) -> Answer<'a, Vec<ProgramRow>>;

    /// One action; `None` if it is unknown or was pruned.
    fn action(&self, action: u64) -> Answer<'_, Option<ActionRow>>;

    /// Actions that match, newest first.
    fn actions<'a>(&'a self, page: &'a ActionPage) -> Answer<'a, Vec<ActionRow>>;

    /// Adds or replaces a service that actions may ask for.
    fn put_service<'a>(&'a self, service: &'a ServiceRow) -> Answer<'a, ()>;

    /// All services, by name.
    fn services(&self) -> Answer<'_, Vec<ServiceRow>>;

    /// How long the newest programs of a job were that have ended, newest first; without those that
    /// had no step.
    fn lengths<'a>(&'a self, job: &'a str, limit: u32) -> Answer<'a, Vec<LengthRow>>;

    /// Adds a sample, or replaces the one of the same time.
    fn add_sample<'a>(&'a self, row: &'a SampleRow) -> Answer<'a, ()>;

    /// Samples of a time.
    fn samples<'a>(&'a self, page: &'a SamplePage) -> Answer<'a, Vec<SampleRow>>;

    /// Removes samples from before a time, a bounded number at a time; returns their number.
    fn prune_samples(&self, before_us: u64) -> Answer<'_, u64>;

    /// Steps of one program, by rising number.
    fn steps<'a>(&'a self, program: &'a str, page: &'a StepPage) -> Answer<'a, Vec<StepRow>>;

    /// Steps that have ended, of one program or of all, beside what their programs came to.
    fn listed_steps<'a>(&'a self, page: &'a ListedPage) -> Answer<'a, Vec<ListedStep>>;

    /// How far the first `rows` steps go among which a page is looked for, whether they match or
    /// not: when the last of them ended. `None` if there are fewer, or if all that are read match.
    /// Where steps are sorted by the time that they took, those are the newest.
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

    /// Adds or replaces what the policy of a binding has stored.
    fn put_policy_state<'a>(&'a self, state: &'a PolicyStateRow) -> Answer<'a, ()>;

    /// What the policies of all bindings have stored, by job and world.
    fn policy_states(&self) -> Answer<'_, Vec<PolicyStateRow>>;

    /// Adds or replaces a tenant.
    fn put_tenant<'a>(&'a self, tenant: &'a TenantRow) -> Answer<'a, ()>;

    /// All tenants, by name.
    fn tenants(&self) -> Answer<'_, Vec<TenantRow>>;

    /// Adds or replaces an API token.
    fn put_token<'a>(&'a self, token: &'a TokenRow) -> Answer<'a, ()>;

    /// All API tokens, including those that are no longer valid, newest first.
    fn tokens(&self) -> Answer<'_, Vec<TokenRow>>;

    /// Notes when tokens, by their ids, were last used.
    fn touch_tokens<'a>(&'a self, uses: &'a [(String, u64)]) -> Answer<'a, ()>;

    /// Removes tokens that were revoked or expired before this time; returns their number.
    fn prune_tokens(&self, ended_before_us: u64) -> Answer<'_, u64>;

    /// Makes a plugin a tenant's. `true` if it was not before.
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
    /// [`StoreError::Ahead`] if the journal has not got that far,
    /// [`StoreError::TooLarge`] past [`SNAPSHOT_BYTES_MAX`].
    fn save_snapshot<'a>(&'a self, snapshot: &'a Snapshot) -> Answer<'a, ()>;

    /// The newest snapshot; recovery replays the events after it.
    fn latest_snapshot(&self) -> Answer<'_, Option<Snapshot>>;

    /// Removes rows past their retention, at most [`PRUNE_ROWS_MAX`] rows of a table; call again
    /// while [`Pruned::more`].
    ///
    /// Events and decisions after the newest snapshot always stay, and without a snapshot all do:
    /// recovery needs them. So do those that a sink has not passed, within a bound. A caller that recovers in another way saves an empty snapshot.
    fn prune<'a>(&'a self, retention: &'a Retention) -> Answer<'a, Pruned>;

    /// The last event that a sink has; 0 for nothing yet.
    fn sink_cursor<'a>(&'a self, sink: &'a str) -> Answer<'a, u64>;

    /// Notes that a sink has all events up to this one. Never goes back.
    ///
    /// # Errors
    /// [`StoreError::Ahead`] if the journal has not got that far, [`StoreError::TooLarge`] past
    /// [`SINKS_MAX`].
    fn advance_sink<'a>(&'a self, sink: &'a str, seq: u64) -> Answer<'a, ()>;

    /// All sinks, by name.
    fn sinks(&self) -> Answer<'_, Vec<SinkRow>>;

    /// Forgets a sink, so that no event stays for it. `true` if it was known.
    fn drop_sink<'a>(&'a self, sink: &'a str) -> Answer<'a, bool>;

    /// Notes that a command came. `true` if it is new; if it is not, nothing changes.
    fn note_command<'a>(&'a self, command: &'a CommandRow) -> Answer<'a, bool>;

    /// One command; `None` if it is unknown or was pruned.
    fn command<'a>(&'a self, id: &'a str) -> Answer<'a, Option<CommandRow>>;

    /// Sets the result of a command. `true` if it is known.
    fn settle_command<'a>(&'a self, id: &'a str, outcome: &'a str) -> Answer<'a, bool>;

    /// Removes commands that came before this time, at most [`PRUNE_ROWS_MAX`]; returns their
    /// number.
    fn prune_commands(&self, before_us: u64) -> Answer<'_, u64>;

    /// The number of a gateway: 1 or more, the same whenever this name asks.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`GATEWAYS_MAX`].
    fn gateway_id<'a>(&'a self, name: &'a str) -> Answer<'a, u32>;

    /// A number that only this store and its daemons know, by what it is for: `fresh` if there was
    /// none, the same ever after.
    fn key<'a>(&'a self, name: &'a str, fresh: u64) -> Answer<'a, u64>;

    /// Adds or replaces bodies of steps, compressed.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`BODY_BYTES_MAX`].
    fn put_bodies<'a>(&'a self, bodies: &'a [BodyRow]) -> Answer<'a, ()>;

    /// All bodies of a step, by kind.
    fn bodies<'a>(&'a self, program: &'a str, step: u64) -> Answer<'a, Vec<BodyRow>>;

    /// Removes bodies that came before this time, at most [`PRUNE_BODIES_MAX`]; returns their
    /// number.
    fn prune_bodies(&self, before_us: u64) -> Answer<'_, u64>;

    /// Bytes of all bodies of these programs, before they are compressed.
    fn body_bytes<'a>(&'a self, programs: &'a Names) -> Answer<'a, u64>;

    /// Removes the oldest bodies of these programs until so many bytes have gone, at most
    /// [`PRUNE_BODIES_MAX`]; returns their number. Of descriptions of actions ([`DESCRIPTION`]) only
    /// those go that are older than an hour and than all actions that have not ended.
    fn shed_bodies<'a>(&'a self, programs: &'a Names, bytes: u64) -> Answer<'a, u64>;

    /// Tries to lead. `Some(epoch)` if this handle leads now, `None` if another one does.
    ///
    /// Each term has an epoch of its own, greater than all before. A leader that gives no sign of
    /// life for [`LEASE`] is overthrown by the next candidate. A leader whose database restarts
    /// goes on, unless another one was faster.
    fn campaign<'a>(&'a self, candidate: &'a Candidate) -> Answer<'a, Option<u64>>;

    /// The present or last leader; `None` if there never was one or the last one resigned.
    fn leader(&self) -> Answer<'_, Option<LeaderRow>>;

    /// Steps down, so that the next candidate need not wait.
    fn resign(&self) -> Answer<'_, ()>;

    /// This handle's leadership state, and a notice of each change.
    fn leadership(&self) -> watch::Receiver<Leadership>;

    /// What can't be written at present and since when, as this handle has seen it.
    fn condition(&self) -> Condition;

    /// Notifies with the reason once what was opened is gone: a database file that was deleted,
    /// replaced or cut. Nothing is read or written from then on.
    fn lost(&self) -> watch::Receiver<Option<Arc<str>>>;

    /// What this store is.
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

/// Which migrations the store at a location has and lacks. Changes nothing and creates nothing.
///
/// # Errors
/// What keeps it from being read.
pub async fn schema_status(location: &Location) -> Result<SchemaStatus, StoreError> {
    match location {
        Location::File(path) => sqlite::status_of_file(path).await,
        Location::Memory => Ok(SchemaStatus::default()),
        Location::Postgres(location) => postgres::status_of(location).await,
    }
}

/// Applies the migrations that the store at a location lacks; how it is afterwards.
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

/// Checks the store at a location: what can be reached, may be done, fits and has room. Changes
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
