//! Transactions of SQLite, and inserts of many rows by few statements.
//!
//! A statement for each row would spend its time on the way to the connection's thread and back.
//! Rows go in statements of a few fixed lengths instead, so that all of them stay prepared.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Encode, Row, Sqlite, Transaction, Type};

use crate::StoreError;
use crate::sql::{Argument, Record, Statement, Table, Values, Work, check_text};

/// Rows in one statement: as many of the first length as fit, then of the next.
const LENGTHS: [usize; 3] = [256, 16, 1];

/// A transaction.
pub(crate) struct SqliteWork(pub(super) Transaction<'static, Sqlite>);

impl Work for SqliteWork {
    type Row = SqliteRow;

    async fn execute(&mut self, statement: Statement) -> Result<u64, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let done = sqlx::query_with(sql, arguments)
            .execute(&mut *self.0)
            .await
            .map_err(failed)?;
        Ok(done.rows_affected())
    }

    async fn fetch(&mut self, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let query = sqlx::query_with(sql, arguments);
        query.fetch_all(&mut *self.0).await.map_err(failed)
    }

    async fn insert<T: Sync>(&mut self, table: &Table<T>, rows: &[T]) -> Result<(), StoreError> {
        let mut rest = rows;
        for length in LENGTHS {
            if rest.len() < length {
                continue;
            }
            let sql = insertion(table, length);
            while rest.len() >= length {
                let (now, later) = rest.split_at(length);
                rest = later;
                let arguments = values(table, now)?;
                // The text comes from constants alone.
                sqlx::query_with(AssertSqlSafe(sql.as_str()), arguments)
                    .execute(&mut *self.0)
                    .await
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.0.commit().await.map_err(failed)
    }
}

/// The statement that inserts so many rows.
fn insertion<T>(table: &Table<T>, rows: usize) -> String {
    let row = format!("({})", vec!["?"; table.columns.len()].join(","));
    format!(
        "INSERT INTO {} ({}) VALUES {}{}",
        table.name,
        table.list(),
        vec![row.as_str(); rows].join(","),
        table.replacement()
    )
}

/// The problem, as the store's error.
pub(super) fn failed(error: sqlx::Error) -> StoreError {
    match &error {
        // Steps have the only foreign key.
        sqlx::Error::Database(inner) if inner.is_foreign_key_violation() => StoreError::Orphan,
        _ => StoreError::Database(error),
    }
}

/// Results of SQLite for refused rows: a text is too long (`SQLITE_TOOBIG`), a constraint does not
/// hold (`SQLITE_CONSTRAINT`), a value is of another type (`SQLITE_MISMATCH`), there are too many
/// values (`SQLITE_RANGE`).
const OF_ROWS: [u32; 4] = [18, 19, 20, 25];

/// Whether the rows are refused, and not the moment.
pub(crate) fn refuses_rows(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(inner) => {
            let code = inner.code().and_then(|code| code.parse::<u32>().ok());
            // The lowest byte is the result, the others are details.
            code.is_some_and(|code| OF_ROWS.contains(&(code & 0xff)))
        }
        sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// A statement with its arguments in SQLite's form.
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

fn values<T>(table: &Table<T>, rows: &[T]) -> Result<SqliteArguments, StoreError> {
    let mut values = Bound {
        table: table.name,
        arguments: SqliteArguments::default(),
    };
    let count = rows.len() * table.columns.len();
    values.arguments.reserve(count, 0);
    for row in rows {
        (table.bind)(row, &mut values)?;
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

    fn maybe_text(&mut self, value: Option<&'r str>) -> Result<(), StoreError> {
        check_text(value)?;
        add(&mut self.arguments, value)
    }

    fn maybe_bytes(&mut self, value: Option<&'r [u8]>) -> Result<(), StoreError> {
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

    fn signed(&self, column: &str) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(column)
    }

    fn shown(&self, column: &str) -> Option<String> {
        // Unchecked: SQLite turns a number into text.
        self.try_get_unchecked::<String, _>(column).ok()
    }
}
