//! Transactions of SQLite, and inserts of many rows by few statements.
//!
//! One statement per row would spend its time on the way to the connection's thread and back. Rows
//! are inserted by statements with a few fixed numbers of rows instead, so that all of them stay
//! prepared.
//!
//! sqlx's own transactions are not used: SQLite ends a transaction by itself when the disk is full
//! or fails, and sqlx then considers the connection to be in one forever. A connection returns to
//! the pool only after a commit, or after a `ROLLBACK` that succeeded; any other one is closed.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Encode, Row, Sqlite, Type};

use super::files::Files;
use crate::StoreError;
use crate::sql::{Argument, Record, Statement, TableRow, Values, Work, check_text, column_names};

/// Numbers of rows per statement: the largest that fits is used first.
const LENGTHS: [usize; 3] = [256, 16, 1];

/// A transaction.
pub(crate) struct SqliteWork {
    /// `None` once it is committed.
    connection: Option<PoolConnection<Sqlite>>,
    /// The database's files; a database in memory has none, and ends with its connection.
    files: Option<Arc<Files>>,
    /// Whether a statement failed in a way that may have ended the transaction.
    is_doubtful: bool,
}

impl SqliteWork {
    /// Begins a transaction that writes.
    pub(super) async fn begin(
        connection: PoolConnection<Sqlite>,
        files: Option<Arc<Files>>,
    ) -> Result<Self, StoreError> {
        let mut work = Self {
            connection: Some(connection),
            files,
            is_doubtful: false,
        };
        // Immediate: the first read then holds the lock that the write needs anyway.
        work.execute(Statement::new("BEGIN IMMEDIATE")).await?;
        Ok(work)
    }

    /// Its connection.
    fn on(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        let connection = self.connection.as_deref_mut();
        Ok(connection.ok_or(sqlx::Error::PoolClosed)?)
    }

    /// Converts the error of a statement to the store's error.
    fn noted(&mut self, error: sqlx::Error) -> StoreError {
        let error = failed(error);
        self.is_doubtful |= !error.is_permanent();
        error
    }
}

impl Work for SqliteWork {
    type Row = SqliteRow;

    async fn execute(&mut self, statement: Statement) -> Result<u64, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let query = sqlx::query_with(sql, arguments);
        let done = query.execute(self.on()?).await;
        Ok(done.map_err(|error| self.noted(error))?.rows_affected())
    }

    async fn fetch(&mut self, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let query = sqlx::query_with(sql, arguments);
        let rows = query.fetch_all(self.on()?).await;
        rows.map_err(|error| self.noted(error))
    }

    async fn insert<T: TableRow>(&mut self, rows: &[T]) -> Result<(), StoreError> {
        let mut rest = rows;
        for length in LENGTHS {
            if rest.len() < length {
                continue;
            }
            let sql = insertion::<T>(length);
            while rest.len() >= length {
                let (now, later) = rest.split_at(length);
                rest = later;
                let arguments = values(now)?;
                // The text consists only of constants.
                let query = sqlx::query_with(AssertSqlSafe(sql.as_str()), arguments);
                let done = query.execute(self.on()?).await;
                done.map_err(|error| self.noted(error))?;
            }
        }
        Ok(())
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.execute(Statement::new("COMMIT")).await?;
        self.connection = None;
        // What was written to a deleted or replaced file is not stored.
        self.files.as_ref().map_or(Ok(()), |files| files.demand())
    }
}

impl Drop for SqliteWork {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let outlives_its_connection = self.files.is_some();
        let is_doubtful = self.is_doubtful && outlives_its_connection;
        // Without a runtime the process ends; so does the connection.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(undo(connection, is_doubtful, outlives_its_connection));
        }
    }
}

/// Rolls back. If the connection's state is unknown after that, it is closed and the next
/// transaction opens another one; a connection that holds the database itself is kept.
async fn undo(mut connection: PoolConnection<Sqlite>, is_doubtful: bool, may_close: bool) {
    if !is_doubtful {
        let undone = sqlx::query("ROLLBACK").execute(&mut *connection).await;
        if undone.is_ok() || !may_close {
            return;
        }
    }
    let _ = connection.close().await;
}

/// The statement that inserts this number of rows.
fn insertion<T: TableRow>(rows: usize) -> String {
    let columns = T::written();
    let row = format!("({})", vec!["?"; columns.len()].join(","));
    format!(
        "INSERT INTO {} ({}) VALUES {}{}",
        T::TABLE,
        column_names(&columns),
        vec![row.as_str(); rows].join(","),
        T::replacement()
    )
}

/// Converts the error to the store's.
pub(super) fn failed(error: sqlx::Error) -> StoreError {
    match &error {
        // Steps have the only foreign key.
        sqlx::Error::Database(inner) if inner.is_foreign_key_violation() => StoreError::Orphan,
        _ => StoreError::Database(error),
    }
}

/// SQLite's result codes for refused rows: a text is too long (`SQLITE_TOOBIG`), a constraint is
/// violated (`SQLITE_CONSTRAINT`), a value has another type (`SQLITE_MISMATCH`), there are too many
/// values (`SQLITE_RANGE`).
const OF_ROWS: [u32; 4] = [18, 19, 20, 25];

/// Whether the rows themselves are refused, so that retrying can't help.
pub(crate) fn refuses_rows(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Encode(_) => true,
        // The lowest byte is the primary code, the others are details.
        error => code(error).is_some_and(|code| OF_ROWS.contains(&(code & 0xff))),
    }
}

/// SQLite's extended result code.
pub(super) fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Remedies by primary result code.
const REMEDIES: [(u32, &str); 10] = [
    (
        5,
        "another process holds the file: end it, or give each its own `store.path`; the daemon retries",
    ),
    (
        6,
        "another process holds the file: end it, or give each its own `store.path`; the daemon retries",
    ),
    (7, "give the machine more memory; the daemon retries"),
    (
        8,
        "make the file and its folder writable for the user of the daemon; writing resumes automatically",
    ),
    (
        10,
        "the disk fails: check it and the system's log (dmesg); the daemon retries",
    ),
    (
        11,
        "the file is damaged: stop the daemon and restore it from a backup",
    ),
    (
        13,
        "free space on the disk of the store; no acknowledged write is lost, and writing resumes automatically",
    ),
    (
        14,
        "check that the file and its folder are there and may be written, and the limit of open files; the daemon retries",
    ),
    (
        23,
        "access denied: check the permissions of the file and its folder",
    ),
    (
        26,
        "the file is not a database: stop the daemon and restore it from a backup",
    ),
];

/// The remedy for an error.
pub(crate) fn remedy(error: &sqlx::Error) -> &'static str {
    let result = code(error).map(|code| code & 0xff);
    let known = REMEDIES.iter().find(|(known, _)| Some(*known) == result);
    known.map_or(
        "check the free space, and that no other process holds the store",
        |(_, remedy)| remedy,
    )
}

/// Converts a statement and its arguments to SQLite's form.
pub(super) fn bound(statement: Statement) -> Result<(sqlx::SqlStr, SqliteArguments), StoreError> {
    let (sql, list) = statement.parts();
    let mut arguments = SqliteArguments::default();
    for argument in list {
        match argument {
            Argument::Number(value) => add(&mut arguments, value)?,
            Argument::Text(value) => add(&mut arguments, value)?,
            Argument::Bytes(value) => add(&mut arguments, value)?,
        }
    }
    Ok((sql, arguments))
}

fn add<'t, T>(arguments: &mut SqliteArguments, value: T) -> Result<(), StoreError>
where
    T: Encode<'t, Sqlite> + Type<Sqlite>,
{
    arguments
        .add(value)
        .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
}

fn values<T: TableRow>(rows: &[T]) -> Result<SqliteArguments, StoreError> {
    let mut values = Bound {
        table: T::TABLE,
        arguments: SqliteArguments::default(),
    };
    let count = rows.len() * T::written().len();
    values.arguments.reserve(count, 0);
    for row in rows {
        row.bind(&mut values)?;
    }
    Ok(values.arguments)
}

struct Bound {
    table: &'static str,
    arguments: SqliteArguments,
}

impl<'r> Values<'r> for Bound {
    fn table(&self) -> &'static str {
        self.table
    }

    fn signed(&mut self, value: Option<i64>) -> Result<(), StoreError> {
        add(&mut self.arguments, value)
    }

    fn text(&mut self, value: Option<&'r str>) -> Result<(), StoreError> {
        check_text(value)?;
        add(&mut self.arguments, value)
    }

    fn bytes(&mut self, value: Option<&'r [u8]>) -> Result<(), StoreError> {
        add(&mut self.arguments, value)
    }
}

impl Record for SqliteRow {
    fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error> {
        self.try_get(column)
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.try_get(column)
    }

    fn borrowed(&self, column: &str) -> Result<Option<&[u8]>, sqlx::Error> {
        self.try_get(column)
    }

    fn signed(&self, column: &str) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(column)
    }

    fn shown(&self, column: &str) -> Option<String> {
        // Unchecked, because SQLite converts a number to text.
        self.try_get_unchecked::<String, _>(column).ok()
    }
}
