//! What can go wrong with a store.

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
    /// The schema is not one that this build can bring up to date.
    #[error("the schema of the store at {location} doesn't fit this build: {source}; {remedy}")]
    Schema {
        /// Path, or `memory`.
        location: String,
        /// Which migration did not fit.
        source: sqlx::migrate::MigrateError,
        /// What to do.
        remedy: &'static str,
    },
    /// The events of a batch don't continue the journal one by one.
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
        /// What is claimed.
        seq: u64,
        /// Where the journal ends.
        last_seq: u64,
    },
    /// A step whose program is not stored.
    #[error(
        "a step names a program that isn't stored; append the program in the same batch or an earlier one"
    )]
    Orphan,
    /// A digest that is stored with other bytes.
    #[error(
        "plugin {digest} is stored with other bytes; a plugin never changes: upload the new bytes under their own digest"
    )]
    Immutable {
        /// The digest in question.
        digest: String,
    },
    /// Something past its bound.
    #[error("{what} is {got}, at most {max} fit; split it")]
    TooLarge {
        /// What is too large, with its unit.
        what: &'static str,
        /// How large it is.
        got: usize,
        /// How large it may be.
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
    /// A stored value that makes no sense.
    #[error("{table}.{column} of row {row} is corrupt: {reason}; restore the store from a backup")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Key of the row, as text.
        row: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Migrations are pending, and the options forbid to apply them.
    #[error(
        "the schema of the store at {location} lacks {missing}; run `treadle store migrate`, or let the daemon do it by `store.migrate = true`"
    )]
    Pending {
        /// Where the store is.
        location: String,
        /// The migrations, by name.
        missing: String,
    },
    /// Another one leads, or led since this handle did.
    #[error(
        "this daemon writes under epoch {held}, but epoch {current} leads; another daemon took over: let it, and campaign to lead again"
    )]
    Fenced {
        /// Epoch of this handle; 0 if it does not lead.
        held: u64,
        /// Epoch of the last one that led.
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
    /// Another process creates or migrates the same SQLite file and does not come to an end.
    #[error(
        "another process has been creating or migrating the store at {location} for {after_s} s; wait until it is done, or end it, and start again"
    )]
    Opening {
        /// Path of the database.
        location: String,
        /// How long it was waited.
        after_s: u64,
    },
    /// A large body could not be written, read or compressed.
    #[error(
        "the body at {place} failed: {source}; check the free space and permissions, and that the store is opened with the place of its bodies"
    )]
    Bodies {
        /// File, or step.
        place: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// A setting of the connection to PostgreSQL that can't be used.
    #[error("the store's {setting} can't be used: {reason}; correct `store.{setting}`")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// Why not.
        reason: String,
    },
    /// PostgreSQL can't be reached or refuses.
    #[error("PostgreSQL at {location} failed: {source}; {remedy}")]
    Postgres {
        /// Where it is, without the password.
        location: String,
        /// Its error.
        source: sqlx::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// PostgreSQL gave no answer in time.
    #[error(
        "PostgreSQL at {location} gave no answer to {what} within {after_s} s; check its load, its locks (pg_stat_activity) and the network"
    )]
    TimedOut {
        /// Where it is, without the password.
        location: String,
        /// What was asked.
        what: &'static str,
        /// How long it was waited.
        after_s: u64,
    },
    /// What was opened is not there any more; nothing is read or written from then on.
    #[error(
        "{why}; nothing was acknowledged since, and this daemon can't go on: put the files back as they were, or restore a backup, and start it again"
    )]
    Lost {
        /// Where it was, and what became of it.
        why: std::sync::Arc<str>,
    },
    /// Anything else that the database reports: a full disk, a lock held too long, a closed store.
    #[error("the store failed: {0}; {remedy}", remedy = sqlite::remedy(.0))]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// A schema that does not fit, with what to do about it.
    pub(crate) fn schema(location: &str, source: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        let remedy = match &source {
            MigrateError::Dirty(_) => {
                "this migration was left half done: restore the backup from before it, or finish it by hand and set `success` of its row in `_sqlx_migrations` to true"
            }
            MigrateError::VersionMissing(_) => {
                "a newer build wrote it: use that build or a newer one, or another `store.path` or `store.schema`"
            }
            MigrateError::VersionMismatch(_) => {
                "another build wrote it: use the build that wrote it, or another `store.path` or `store.schema`"
            }
            _ => {
                "the migration was undone as a whole: do away with what it names, then run `treadle store migrate` again"
            }
        };
        Self::Schema {
            location: location.to_owned(),
            source,
            remedy,
        }
    }

    /// Whether the same call may succeed later without any change: the database is away, busy or
    /// full.
    pub fn passes(&self) -> bool {
        let is_of_database = matches!(
            self,
            Self::Postgres { .. } | Self::TimedOut { .. } | Self::Database(_)
        );
        is_of_database && !self.is_permanent()
    }

    /// Whether the store itself is in trouble, and not what was asked of it.
    pub(crate) fn is_of_the_store(&self) -> bool {
        self.passes()
            || matches!(
                self,
                Self::Lost { .. } | Self::Bodies { .. } | Self::Corrupt { .. }
            )
    }

    /// Whether the rows themselves are refused, and will be however often they are tried: a number
    /// is out of range, a text is too long or holds what the database can't, a row contradicts
    /// others.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Orphan | Self::TooLarge { .. } | Self::OutOfRange { .. } => true,
            Self::Postgres { source, .. } => postgres::refuses_rows(source),
            Self::Database(source) => sqlite::refuses_rows(source),
            _ => false,
        }
    }
}
