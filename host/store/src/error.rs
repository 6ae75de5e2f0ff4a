//! Errors of the store.

use crate::{postgres, sqlite};

/// Errors of [`crate::Store`] and of opening one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database could not be opened or created.
    #[error(
        "can't open the store at {location}: {source}; check `store.path`, its permissions and the free space"
    )]
    Open {
        /// Path, or `memory`.
        location: String,
        /// The database's error.
        source: sqlx::Error,
    },
    /// The path of the database is that of something else.
    #[error(
        "{location} is not a SQLite database, and was left as it is; set `store.path` to the file of a store, or to a path where none exists yet"
    )]
    NotADatabase {
        /// Path of the database.
        location: String,
    },
    /// The folder of the database could not be created.
    #[error(
        "can't create the folder of the store {location}: {source}; check `store.path` and its permissions"
    )]
    Folder {
        /// Path of the database.
        location: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A schema that this build can't bring up to date.
    #[error("the schema of the store at {location} doesn't match this build: {source}; {remedy}")]
    Schema {
        /// Path, or `memory`.
        location: String,
        /// The migration that did not match.
        source: sqlx::migrate::MigrateError,
        /// What to do.
        remedy: &'static str,
    },
    /// The events of a batch do not continue the journal without a gap.
    #[error(
        "event {got} doesn't follow event {last_seq}; another writer uses this store, or events were lost on the way: reload and replay from event {last_seq}"
    )]
    Gap {
        /// The sequence number that came before.
        last_seq: u64,
        /// The one that came instead of the next.
        got: u64,
    },
    /// A snapshot or a sink at an event that the journal has not reached.
    #[error(
        "event {seq} is not in the journal, which ends at event {last_seq}; append the events first"
    )]
    Ahead {
        /// The sequence number of the snapshot or sink.
        seq: u64,
        /// Where the journal ends.
        last_seq: u64,
    },
    /// A step whose program is not stored.
    #[error(
        "a step names a program that isn't stored; append the program in the same batch or an earlier one"
    )]
    Orphan,
    /// A digest that is already stored with different bytes.
    #[error(
        "plugin {digest} is already stored with different bytes; plugins are immutable: upload the new bytes under their own digest"
    )]
    Immutable {
        /// The digest in question.
        digest: String,
    },
    /// Plugins have used their space.
    #[error(
        "the store has {plugins} plugins of {bytes} bytes in all, the limits are {} and {}; bind one that is stored, or use another store",
        crate::PLUGINS_MAX,
        crate::PLUGINS_BYTES_MAX
    )]
    PluginsFull {
        /// Stored plugins.
        plugins: u64,
        /// Their size.
        bytes: u64,
    },
    /// A value that exceeds a limit.
    #[error("{what} is {got}, the limit is {max}; split it")]
    TooLarge {
        /// What is too large, with its unit.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The limit.
        max: usize,
    },
    /// A number that the database can't hold.
    #[error("{table}.{column} is {value}, more than a signed 64-bit number holds")]
    OutOfRange {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// The number.
        value: u64,
    },
    /// A stored value that is invalid.
    #[error("{table}.{column} of row {row} is corrupt: {reason}; restore the store from a backup")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Key of the row, as text.
        row: String,
        /// Why it is invalid.
        reason: String,
    },
    /// Migrations are pending, and the options do not allow to apply them.
    #[error(
        "the schema of the store at {location} lacks {missing}; run `treadle store migrate`, or let the daemon do it by `store.migrate = true`"
    )]
    Pending {
        /// Where the store is.
        location: String,
        /// The migrations, by name.
        missing: String,
    },
    /// Another handle leads, or has led since this one did.
    #[error(
        "this daemon writes under epoch {held}, but another daemon leads under epoch {current}; campaign to lead again"
    )]
    Fenced {
        /// Epoch of this handle; 0 if it has never led.
        held: u64,
        /// Epoch of the last leader.
        current: u64,
    },
    /// A candidate without a name.
    #[error("a candidate needs a name; set `cluster.name`")]
    Nameless,
    /// The lock file beside a SQLite file can't be used.
    #[error("can't lock {path}: {source}; check the permissions of its folder")]
    Lock {
        /// The lock file.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// Another process is creating or migrating the same SQLite file for too long.
    #[error(
        "another process has been creating or migrating the store at {location} for {after_s} s; wait until it is done, or end it, and start again"
    )]
    Opening {
        /// Path of the database.
        location: String,
        /// How long this process waited, in seconds.
        after_s: u64,
    },
    /// A large body could not be written, read or compressed.
    #[error(
        "the body at {place} failed: {source}; check the free space and permissions, and that `payloads.location` is where the body was written"
    )]
    Bodies {
        /// File, or step.
        place: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// An invalid setting of the connection to PostgreSQL.
    #[error("`store.{setting}` is invalid: {reason}; correct it")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Why it is invalid.
        reason: String,
    },
    /// PostgreSQL can't be reached, or reports an error.
    #[error("PostgreSQL at {location} failed: {source}; {remedy}")]
    Postgres {
        /// Where it is, without the password.
        location: String,
        /// Its error.
        source: sqlx::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// PostgreSQL did not answer in time.
    #[error(
        "PostgreSQL at {location} gave no answer to {what} within {after_s} s; check its load, its locks (pg_stat_activity) and the network"
    )]
    TimedOut {
        /// Where it is, without the password.
        location: String,
        /// The operation.
        what: &'static str,
        /// The timeout, in seconds.
        after_s: u64,
    },
    /// The store's files no longer exist as opened; nothing is read or written from then on.
    #[error(
        "{why}; nothing has been acknowledged since: put the files back as they were, or restore a backup, then restart the daemon"
    )]
    Lost {
        /// The location, and what happened to it.
        why: std::sync::Arc<str>,
    },
    /// Anything else that the database reports: a full disk, a lock held too long, a closed store.
    #[error("the store failed: {0}; {remedy}", remedy = sqlite::remedy(.0))]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// A schema that does not match, with the remedy.
    pub(crate) fn schema(location: &str, source: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        let remedy = match &source {
            MigrateError::Dirty(_) => {
                "this migration was not completed: restore the backup from before it, or complete it by hand and set `success` of its row in `_sqlx_migrations` to true"
            }
            MigrateError::VersionMissing(_) => {
                "a newer build wrote it: use that build or a newer one, or another `store.path` or `store.schema`"
            }
            MigrateError::VersionMismatch(_) => {
                "another build wrote it: use the build that wrote it, or another `store.path` or `store.schema`"
            }
            _ => {
                "the migration was rolled back: remove the cause in the message, then run `treadle store migrate` again"
            }
        };
        Self::Schema {
            location: location.to_owned(),
            source,
            remedy,
        }
    }

    /// Whether the same call may succeed later without any change, because the database is
    /// unreachable, busy or full.
    pub fn passes(&self) -> bool {
        let is_of_database = matches!(
            self,
            Self::Postgres { .. } | Self::TimedOut { .. } | Self::Database(_)
        );
        is_of_database && !self.is_permanent()
    }

    /// Whether the store itself has failed, as opposed to an error of the request.
    pub(crate) fn is_of_the_store(&self) -> bool {
        self.passes()
            || matches!(
                self,
                Self::Lost { .. } | Self::Bodies { .. } | Self::Corrupt { .. }
            )
    }

    /// Whether retrying can't succeed, because the database refuses the rows themselves: a number
    /// is out of range, a text is too long or has characters that the database can't store, or a
    /// row contradicts others.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Orphan | Self::TooLarge { .. } | Self::OutOfRange { .. } => true,
            Self::Postgres { source, .. } => postgres::refuses_rows(source),
            Self::Database(source) => sqlite::refuses_rows(source),
            _ => false,
        }
    }
}
