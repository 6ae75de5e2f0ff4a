//! Reads the cells of a row, and reports corrupt ones.

use crate::StoreError;

/// A row of a database.
pub(crate) trait Record: Send + Sync + 'static {
    /// Text or NULL.
    fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error>;
    /// Bytes or NULL.
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error>;
    /// Bytes or NULL, where they are in the row.
    fn borrowed(&self, column: &str) -> Result<Option<&[u8]>, sqlx::Error>;
    /// A number or NULL.
    fn signed(&self, column: &str) -> Result<Option<i64>, sqlx::Error>;
    /// Any value as text, for messages.
    fn shown(&self, column: &str) -> Option<String>;
}

/// A row that was read.
pub(crate) struct Cells<'r, R> {
    /// Table that it is from.
    pub table: &'static str,
    /// Columns that identify the row.
    pub key: &'static [&'static str],
    /// The row.
    pub row: &'r R,
}

impl<R: Record> Cells<'_, R> {
    /// Text that is not NULL.
    pub(crate) fn text(&self, column: &'static str) -> Result<String, StoreError> {
        let value = self.maybe_text(column)?;
        value.ok_or_else(|| self.corrupt(column, "it is NULL".into()))
    }

    /// Text or NULL.
    pub(crate) fn maybe_text(&self, column: &'static str) -> Result<Option<String>, StoreError> {
        self.row
            .text(column)
            .map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// Bytes that are not NULL.
    pub(crate) fn bytes(&self, column: &'static str) -> Result<Vec<u8>, StoreError> {
        let value = self.maybe_bytes(column)?;
        value.ok_or_else(|| self.corrupt(column, "it is NULL".into()))
    }

    /// Bytes or NULL.
    pub(crate) fn maybe_bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, StoreError> {
        self.row
            .bytes(column)
            .map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// Bytes that are not NULL, where they are in the row.
    pub(crate) fn borrowed(&self, column: &'static str) -> Result<&[u8], StoreError> {
        let value = self.row.borrowed(column);
        let value = value.map_err(|error| self.corrupt(column, error.to_string()))?;
        value.ok_or_else(|| self.corrupt(column, "it is NULL".into()))
    }

    /// A number that is neither negative nor NULL.
    pub(crate) fn number(&self, column: &'static str) -> Result<u64, StoreError> {
        let value = self.maybe_number(column)?;
        value.ok_or_else(|| self.corrupt(column, "it is NULL".into()))
    }

    /// A number that is not negative, or NULL.
    pub(crate) fn maybe_number(&self, column: &'static str) -> Result<Option<u64>, StoreError> {
        let value = self
            .row
            .signed(column)
            .map_err(|error| self.corrupt(column, error.to_string()))?;
        let unsigned = |value: i64| {
            u64::try_from(value).map_err(|_| self.corrupt(column, format!("{value} is negative")))
        };
        value.map(unsigned).transpose()
    }

    /// A number of 32 bits that is neither negative nor NULL.
    pub(crate) fn small(&self, column: &'static str) -> Result<u32, StoreError> {
        let value = self.number(column)?;
        u32::try_from(value).map_err(|_| self.corrupt(column, format!("{value} is too large")))
    }

    /// A number or NULL.
    pub(crate) fn maybe_signed(&self, column: &'static str) -> Result<Option<i64>, StoreError> {
        let value = self.row.signed(column);
        value.map_err(|error| self.corrupt(column, error.to_string()))
    }

    /// The error for a corrupt cell.
    pub(crate) fn corrupt(&self, column: &'static str, reason: String) -> StoreError {
        let key: Vec<String> = self
            .key
            .iter()
            .map(|&column| {
                let shown = self.row.shown(column);
                shown.unwrap_or_else(|| format!("unreadable {column}"))
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
