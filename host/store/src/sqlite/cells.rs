//! Reads the cells of a row and says which one is corrupt.

use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, Type};

use crate::StoreError;

/// A row that was read.
pub(super) struct Cells<'r> {
    /// Table that it is from.
    pub table: &'static str,
    /// Columns that name it.
    pub key: &'static [&'static str],
    /// The row.
    pub row: &'r SqliteRow,
}

impl<'r> Cells<'r> {
    /// Text, bytes, or NULL as `None`.
    pub(super) fn value<T>(&self, column: &'static str) -> Result<T, StoreError>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite>,
    {
        self.row
            .try_get(column)
            .map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// A number that is not negative.
    pub(super) fn number(&self, column: &'static str) -> Result<u64, StoreError> {
        let value = self.value::<i64>(column)?;
        self.unsigned(column, value)
    }

    /// A number that is not negative, or NULL.
    pub(super) fn maybe_number(&self, column: &'static str) -> Result<Option<u64>, StoreError> {
        self.value::<Option<i64>>(column)?
            .map(|value| self.unsigned(column, value))
            .transpose()
    }

    fn unsigned(&self, column: &'static str, value: i64) -> Result<u64, StoreError> {
        u64::try_from(value).map_err(|_| self.corrupt(column, format!("{value} is negative")))
    }

    fn corrupt(&self, column: &'static str, reason: String) -> StoreError {
        let key: Vec<String> = self
            .key
            .iter()
            .map(|&column| {
                // Unchecked: SQLite turns a number into text.
                self.row
                    .try_get_unchecked::<String, _>(column)
                    .unwrap_or_else(|_| format!("unreadable {column}"))
            })
            .collect();
        StoreError::Corrupt {
            table: self.table,
            column,
            row: key.join(" "),
            reason,
        }
    }
}
