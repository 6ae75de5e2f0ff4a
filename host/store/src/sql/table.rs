//! Tables with bulk inserts.

use crate::StoreError;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Numbers.
    Number,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
}

/// A column's name and type.
pub(crate) type Column = (&'static str, Kind);

/// A column of numbers.
pub(super) const fn number(name: &'static str) -> Column {
    (name, Kind::Number)
}

/// A column of text.
pub(super) const fn text(name: &'static str) -> Column {
    (name, Kind::Text)
}

/// A column of bytes.
pub(super) const fn bytes(name: &'static str) -> Column {
    (name, Kind::Bytes)
}

/// A table that rows are inserted into.
pub(crate) struct Table<T> {
    /// Its name.
    pub name: &'static str,
    /// The columns, in the order in which the values are bound.
    pub columns: &'static [Column],
    /// The key of rows that replace others; empty if rows are only ever added.
    pub key: &'static [&'static str],
    /// Binds one row's values in the order of the columns.
    pub bind: for<'r> fn(&'r T, &mut dyn Values<'r>) -> Result<(), StoreError>,
}

impl<T> Table<T> {
    /// Column names, separated by commas.
    pub(crate) fn list(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.0).collect();
        names.join(",")
    }

    /// The clause that replaces a row with the same key; empty for a table without a key.
    pub(crate) fn replacement(&self) -> String {
        if self.key.is_empty() {
            return String::new();
        }
        let updates: Vec<String> = self
            .columns
            .iter()
            .filter(|column| !self.key.contains(&column.0))
            .map(|column| format!("{0}=excluded.{0}", column.0))
            .collect();
        format!(
            " ON CONFLICT ({}) DO UPDATE SET {}",
            self.key.join(","),
            updates.join(",")
        )
    }
}

/// Receives the values of rows, in the order of the table's columns.
pub(crate) trait Values<'r> {
    /// The table's name, for errors.
    fn table(&self) -> &'static str;
    /// A number or NULL.
    fn signed(&mut self, value: Option<i64>) -> Result<(), StoreError>;
    /// Text or NULL.
    fn maybe_text(&mut self, value: Option<&'r str>) -> Result<(), StoreError>;
    /// Bytes or NULL.
    fn maybe_bytes(&mut self, value: Option<&'r [u8]>) -> Result<(), StoreError>;

    /// A number or NULL; `column` only names it in an error.
    fn maybe_number(&mut self, column: &'static str, value: Option<u64>) -> Result<(), StoreError> {
        let table = self.table();
        let signed = |value: u64| {
            i64::try_from(value).map_err(|_| StoreError::OutOfRange {
                table,
                column,
                value,
            })
        };
        let value = value.map(signed).transpose()?;
        self.signed(value)
    }

    /// A number; `column` only names it in an error.
    fn number(&mut self, column: &'static str, value: u64) -> Result<(), StoreError> {
        self.maybe_number(column, Some(value))
    }

    /// Text.
    fn text(&mut self, value: &'r str) -> Result<(), StoreError> {
        self.maybe_text(Some(value))
    }

    /// Bytes.
    fn bytes(&mut self, value: &'r [u8]) -> Result<(), StoreError> {
        self.maybe_bytes(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_does_not_update_the_key() {
        const TABLE: Table<()> = Table {
            name: "t",
            columns: &[number("a"), text("b"), bytes("c")],
            key: &["a"],
            bind: |(), _| Ok(()),
        };
        assert_eq!(TABLE.list(), "a,b,c");
        assert_eq!(
            TABLE.replacement(),
            " ON CONFLICT (a) DO UPDATE SET b=excluded.b,c=excluded.c"
        );
    }
}
