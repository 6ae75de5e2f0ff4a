//! What can go wrong with a store.

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
        /// What the database said.
        source: sqlx::Error,
    },
    /// The folder of the database could not be created.
    #[error(
        "can't create the folder of the store {location}: {source}; check `store.path` and its permissions"
    )]
    Folder {
        /// Path of the database.
        location: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The schema is not one that this build can bring up to date.
    #[error(
        "the schema of the store at {location} doesn't fit this build: {source}; use the build that wrote it or a newer one, or another `store.path`"
    )]
    Schema {
        /// Path, or `memory`.
        location: String,
        /// Which migration did not fit.
        source: sqlx::migrate::MigrateError,
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
    /// A snapshot of a state that the journal has not reached.
    #[error(
        "snapshot of event {seq}, but the journal ends at event {last_seq}; append the events first"
    )]
    Ahead {
        /// What the snapshot claims.
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
    /// Anything else that the database reports: a full disk, a lock held too long, a closed store.
    #[error(
        "the store failed: {0}; check the free space and that no other process holds the store"
    )]
    Database(#[from] sqlx::Error),
}
