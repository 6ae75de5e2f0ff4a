//! Inserts of many rows by few statements.
//!
//! A statement for each row would spend its time on the way to the connection's thread and back.
//! Rows go in statements of a few fixed lengths instead, so that all of them stay prepared.

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, Type};

use crate::StoreError;

/// Rows in one statement: as many of the first length as fit, then of the next.
const LENGTHS: [usize; 3] = [256, 16, 1];

/// A table that rows are inserted into.
pub(super) struct Table {
    /// Its name.
    pub name: &'static str,
    /// The columns, in the order in which the values are bound.
    pub columns: &'static [&'static str],
    /// The key of rows that replace others; empty if rows are only ever added.
    pub key: &'static [&'static str],
}

impl Table {
    /// The statement that inserts `rows` rows.
    fn statement(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns.len()].join(","));
        let mut sql = format!(
            "INSERT INTO {} ({}) VALUES {}",
            self.name,
            self.columns.join(","),
            vec![row.as_str(); rows].join(",")
        );
        if !self.key.is_empty() {
            let updates: Vec<String> = self
                .columns
                .iter()
                .filter(|column| !self.key.contains(column))
                .map(|column| format!("{column}=excluded.{column}"))
                .collect();
            sql.push_str(" ON CONFLICT (");
            sql.push_str(&self.key.join(","));
            sql.push_str(") DO UPDATE SET ");
            sql.push_str(&updates.join(","));
        }
        sql
    }
}

/// The values of a statement, in the order of the table's columns.
pub(super) struct Values {
    table: &'static str,
    arguments: SqliteArguments,
}

impl Values {
    /// No values yet.
    pub(super) fn of(table: &'static str) -> Self {
        Self {
            table,
            arguments: SqliteArguments::default(),
        }
    }

    /// A number; `column` only names it in an error.
    pub(super) fn number(&mut self, column: &'static str, value: u64) -> Result<(), StoreError> {
        let signed = i64::try_from(value).map_err(|_| StoreError::OutOfRange {
            table: self.table,
            column,
            value,
        })?;
        self.value(signed)
    }

    /// A number or NULL.
    pub(super) fn maybe_number(
        &mut self,
        column: &'static str,
        value: Option<u64>,
    ) -> Result<(), StoreError> {
        match value {
            Some(value) => self.number(column, value),
            None => self.value(None::<i64>),
        }
    }

    /// Text, NULL or bytes.
    pub(super) fn value<'t, T>(&mut self, value: T) -> Result<(), StoreError>
    where
        T: Encode<'t, Sqlite> + Type<Sqlite>,
    {
        self.arguments
            .add(value)
            .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
    }

    /// All of them.
    pub(super) fn done(self) -> SqliteArguments {
        self.arguments
    }
}

/// Inserts rows; `bind` adds one row's values in the order of the columns.
pub(super) async fn rows<T: Sync>(
    connection: &mut SqliteConnection,
    table: &Table,
    rows: &[T],
    bind: fn(&T, &mut Values) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut rest = rows;
    for length in LENGTHS {
        if rest.len() < length {
            continue;
        }
        let sql = table.statement(length);
        while rest.len() >= length {
            let (now, later) = rest.split_at(length);
            rest = later;
            let mut values = Values::of(table.name);
            values.arguments.reserve(length * table.columns.len(), 0);
            for row in now {
                bind(row, &mut values)?;
            }
            // The text comes from constants alone.
            sqlx::query_with(AssertSqlSafe(sql.as_str()), values.done())
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_replaces_all_but_the_key() {
        let table = Table {
            name: "t",
            columns: &["a", "b", "c"],
            key: &["a"],
        };
        assert_eq!(
            table.statement(2),
            "INSERT INTO t (a,b,c) VALUES (?,?,?),(?,?,?) \
             ON CONFLICT (a) DO UPDATE SET b=excluded.b,c=excluded.c"
        );
    }

    #[test]
    fn a_number_that_does_not_fit_names_its_column() {
        let error = Values::of("events").number("at_us", u64::MAX).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("events.at_us is 18446744073709551615")
        );
    }
}
