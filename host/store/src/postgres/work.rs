//! Transactions of PostgreSQL, and inserts of many rows by one statement: each column is an array,
//! and the server turns them into rows.
//!
//! A connection returns to the pool only after a commit, or after a `ROLLBACK` that succeeded. Any
//! other connection is closed, as is one whose server fails with more than refused rows: a new
//! connection may reach another server.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments, AssertSqlSafe, Encode, Postgres, Row, SqlStr, Type};

use super::connect::Target;
use crate::StoreError;
use crate::sql::{
    Argument, Kind, Record, Statement, TableRow, Values, Work, check_text, column_names,
};

/// Most rows of one statement.
const ROWS_MAX: usize = 10_000;
/// Bytes of text and binary values in one statement; the last row may exceed it.
const BYTES_MAX: usize = 32 << 20;
/// Substitute for the NUL character, which PostgreSQL's text can't hold. It is a private-use
/// character, so it should have no other meaning.
const NUL: char = '\u{f0000}';

/// A transaction.
pub(crate) struct PostgresWork {
    /// `None` once it is committed.
    connection: Option<PoolConnection<Postgres>>,
    target: Arc<Target>,
    /// Whether a call failed in a way that leaves the connection's state unknown.
    is_doubtful: bool,
}

impl PostgresWork {
    /// Begins a transaction.
    pub(super) async fn begin(
        connection: PoolConnection<Postgres>,
        target: Arc<Target>,
    ) -> Result<Self, StoreError> {
        let mut work = Self {
            connection: Some(connection),
            target,
            is_doubtful: false,
        };
        work.run("a transaction", "BEGIN").await?;
        Ok(work)
    }

    /// Runs a statement without arguments, in one message.
    async fn run(&mut self, what: &'static str, sql: &'static str) -> Result<(), StoreError> {
        let target = Arc::clone(&self.target);
        let call = sqlx::raw_sql(sql).execute(self.connection()?);
        let done = target.call(what, call).await;
        self.settled(done).map(|_| ())
    }

    /// The connection, for a call. During the call its state counts as unknown.
    fn connection(&mut self) -> Result<&mut PgConnection, StoreError> {
        self.is_doubtful = true;
        let connection = self.connection.as_deref_mut();
        Ok(connection.ok_or(sqlx::Error::PoolClosed)?)
    }

    /// Handles the result of a call.
    fn settled<T>(&mut self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        self.is_doubtful = done.as_ref().is_err_and(|error| !error.is_permanent());
        done
    }
}

impl Work for PostgresWork {
    type Row = PgRow;

    async fn execute(&mut self, statement: Statement) -> Result<u64, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let target = Arc::clone(&self.target);
        let call = sqlx::query_with(sql, arguments).execute(self.connection()?);
        let done = target.call("a change", call).await;
        Ok(self.settled(done)?.rows_affected())
    }

    async fn fetch(&mut self, statement: Statement) -> Result<Vec<PgRow>, StoreError> {
        let (sql, arguments) = bound(statement)?;
        let target = Arc::clone(&self.target);
        let call = sqlx::query_with(sql, arguments).fetch_all(self.connection()?);
        let rows = target.call("a question", call).await;
        self.settled(rows)
    }

    async fn insert<T: TableRow>(&mut self, rows: &[T]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let target = Arc::clone(&self.target);
        let sql = insertion::<T>();
        let mut rest = rows;
        while !rest.is_empty() {
            let (taken, arguments) = columns(rest)?;
            rest = &rest[taken..];
            // The text consists only of constants.
            let query = sqlx::query_with(AssertSqlSafe(sql.as_str()), arguments);
            let call = query.execute(self.connection()?);
            let done = target.call("an insert", call).await;
            self.settled(done)?;
        }
        Ok(())
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.run("a commit", "COMMIT").await?;
        self.connection = None;
        Ok(())
    }
}

impl Drop for PostgresWork {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // Without a runtime the process ends; so does the connection.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(undo(connection, self.target.clone(), self.is_doubtful));
        }
    }
}

/// Rolls back, or closes the connection if its state is unknown, so that the server rolls back.
async fn undo(mut connection: PoolConnection<Postgres>, target: Arc<Target>, is_doubtful: bool) {
    if !is_doubtful {
        let undo = sqlx::raw_sql("ROLLBACK").execute(&mut *connection);
        if target.call("a rollback", undo).await.is_ok() {
            return;
        }
    }
    connection.close_on_drop();
}

/// The statement that inserts any number of rows.
fn insertion<T: TableRow>() -> String {
    let columns = T::written();
    let arrays: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(n, column)| {
            let kind = match column.kind {
                Kind::Number => "bigint",
                Kind::Text => "text",
                Kind::Bytes => "bytea",
            };
            format!("${}::{kind}[]", n + 1)
        })
        .collect();
    let (name, list, arrays) = (T::TABLE, column_names(&columns), arrays.join(","));
    let key = T::conflict().join(",");
    if key.is_empty() {
        // UNNEST keeps the order of the arrays, and so the rows are numbered in it.
        return format!("INSERT INTO {name} ({list}) SELECT * FROM UNNEST({arrays})");
    }
    // Of rows with the same key the last one is kept; a statement can't replace a row twice.
    format!(
        "INSERT INTO {name} ({list}) SELECT DISTINCT ON ({key}) {list} \
         FROM UNNEST({arrays}) WITH ORDINALITY AS given ({list}, place) \
         ORDER BY {key}, place DESC{}",
        T::replacement()
    )
}

/// Converts a statement and its arguments to PostgreSQL's form.
pub(super) fn bound(statement: Statement) -> Result<(SqlStr, PgArguments), StoreError> {
    let (sql, list) = statement.parts();
    let mut arguments = PgArguments::default();
    for argument in list {
        match argument {
            Argument::Number(value) => add(&mut arguments, value)?,
            Argument::Text(value) => add(&mut arguments, without_nul(&value).as_ref())?,
            Argument::Bytes(value) => add(&mut arguments, value)?,
        }
    }
    Ok((sql, arguments))
}

fn add<'t, T>(arguments: &mut PgArguments, value: T) -> Result<(), StoreError>
where
    T: Encode<'t, Postgres> + Type<Postgres>,
{
    arguments
        .add(value)
        .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
}

fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', NUL.encode_utf8(&mut [0; 4])))
    } else {
        Cow::Borrowed(text)
    }
}

/// The arrays for as many rows as fit into one statement, and the number of rows.
fn columns<T: TableRow>(rows: &[T]) -> Result<(usize, PgArguments), StoreError> {
    let mut columns = Columns {
        table: T::TABLE,
        next: 0,
        bytes: 0,
        kept: T::written()
            .iter()
            .map(|column| match column.kind {
                Kind::Number => Column::Numbers(Vec::with_capacity(rows.len().min(ROWS_MAX))),
                Kind::Text => Column::Texts(Vec::with_capacity(rows.len().min(ROWS_MAX))),
                Kind::Bytes => Column::Bytes(Vec::new()),
            })
            .collect(),
    };
    let mut taken = 0;
    for row in rows {
        if taken == ROWS_MAX || columns.bytes >= BYTES_MAX {
            break;
        }
        columns.next = 0;
        row.bind(&mut columns)?;
        taken += 1;
    }
    let mut arguments = PgArguments::default();
    for column in columns.kept {
        match column {
            Column::Numbers(values) => add(&mut arguments, values)?,
            Column::Texts(values) => add(&mut arguments, values)?,
            Column::Bytes(values) => add(&mut arguments, values)?,
        }
    }
    Ok((taken, arguments))
}

enum Column<'r> {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<Cow<'r, str>>>),
    Bytes(Vec<Option<&'r [u8]>>),
}

struct Columns<'r> {
    table: &'static str,
    next: usize,
    bytes: usize,
    kept: Vec<Column<'r>>,
}

impl<'r> Columns<'r> {
    /// The next column to bind.
    fn turn(&mut self) -> Option<&mut Column<'r>> {
        let column = self.kept.get_mut(self.next);
        self.next += 1;
        column
    }

    /// The error for values that do not match the table's columns: a bug in this crate, found by
    /// the first test that writes the table.
    fn misfit(&self) -> StoreError {
        let said = format!(
            "{}: value {} does not have the column's type",
            self.table, self.next
        );
        StoreError::Database(sqlx::Error::Encode(said.into()))
    }
}

impl<'r> Values<'r> for Columns<'r> {
    fn table(&self) -> &'static str {
        self.table
    }

    fn signed(&mut self, value: Option<i64>) -> Result<(), StoreError> {
        let Some(Column::Numbers(values)) = self.turn() else {
            return Err(self.misfit());
        };
        values.push(value);
        Ok(())
    }

    fn text(&mut self, value: Option<&'r str>) -> Result<(), StoreError> {
        check_text(value)?;
        self.bytes += value.map_or(0, str::len);
        let Some(Column::Texts(values)) = self.turn() else {
            return Err(self.misfit());
        };
        values.push(value.map(without_nul));
        Ok(())
    }

    fn bytes(&mut self, value: Option<&'r [u8]>) -> Result<(), StoreError> {
        self.bytes += value.map_or(0, <[u8]>::len);
        let Some(Column::Bytes(values)) = self.turn() else {
            return Err(self.misfit());
        };
        values.push(value);
        Ok(())
    }
}

impl Record for PgRow {
    fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error> {
        let text: Option<String> = self.try_get(column)?;
        Ok(text.map(|text| {
            if text.contains(NUL) {
                text.replace(NUL, "\0")
            } else {
                text
            }
        }))
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
        let number = self.try_get::<i64, _>(column).map(|n| n.to_string());
        number.or_else(|_| self.try_get(column)).ok()
    }
}
