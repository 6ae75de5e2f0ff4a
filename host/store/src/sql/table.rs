//! Rows of tables. [`table!`] defines a row and all that the statements need of its columns, so
//! that a column is written once.

use super::{Cells, Record, Statement};
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

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// How its values are used.
    role: Role,
}

/// How the values of a column are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Written and read.
    Field,
    /// The same in all rows: written, never read.
    Constant,
    /// Chosen by the database: read, never written.
    Generated,
}

impl Column {
    /// A column that is a field of the row.
    pub(super) const fn field<T: Cell>(name: &'static str) -> Self {
        Self {
            name,
            kind: T::KIND,
            role: Role::Field,
        }
    }

    /// A column of text that is the same in all rows, and part of their key.
    pub(super) const fn constant(name: &'static str) -> Self {
        Self {
            name,
            kind: Kind::Text,
            role: Role::Constant,
        }
    }

    /// A column whose values the database chooses.
    pub(super) const fn generated<T: Cell>(name: &'static str) -> Self {
        Self {
            name,
            kind: T::KIND,
            role: Role::Generated,
        }
    }
}

/// A row of a table; implemented by [`table!`].
pub(crate) trait TableRow: Send + Sync + Sized {
    /// The table's name.
    const TABLE: &'static str;
    /// The columns that identify a row, without a constant one.
    const KEY: &'static [&'static str];
    /// Whether a row replaces the one with the same key.
    const REPLACES: bool;

    /// All columns, in the order in which the values are bound.
    fn columns() -> Vec<Column>;

    /// Binds the values of the columns that are written.
    fn bind<'r>(&'r self, values: &mut dyn Values<'r>) -> Result<(), StoreError>;

    /// Reads the fields of a row.
    fn read<R: Record>(cells: &Cells<'_, R>) -> Result<Self, StoreError>;

    /// Reads a row of the database.
    fn of<R: Record>(row: &R) -> Result<Self, StoreError> {
        Self::read(&Cells {
            table: Self::TABLE,
            key: Self::KEY,
            row,
        })
    }

    /// The columns that are read, separated by commas, each behind a prefix.
    fn list(prefix: &str) -> String {
        let columns = Self::columns().into_iter();
        let read = columns.filter(|column| column.role != Role::Constant);
        let names: Vec<String> = read
            .map(|column| format!("{prefix}{}", column.name))
            .collect();
        names.join(", ")
    }

    /// The statement that reads rows; `rest` is what follows the name of the table.
    fn select(rest: &str) -> Statement {
        let (list, table) = (Self::list(""), Self::TABLE);
        Statement::made(format!("SELECT {list} FROM {table} {rest}"))
    }

    /// The columns that are written.
    fn written() -> Vec<Column> {
        let mut columns = Self::columns();
        columns.retain(|column| column.role != Role::Generated);
        columns
    }

    /// The columns of a conflict between two rows; empty if rows are only ever added.
    fn conflict() -> Vec<&'static str> {
        if !Self::REPLACES {
            return Vec::new();
        }
        let mut columns = Self::columns();
        columns.retain(|column| column.role == Role::Constant);
        let constants = columns.iter().map(|column| column.name);
        constants.chain(Self::KEY.iter().copied()).collect()
    }

    /// The clause that replaces a row with the same key; empty if rows are only ever added.
    fn replacement() -> String {
        let key = Self::conflict();
        if key.is_empty() {
            return String::new();
        }
        let updates: Vec<String> = Self::written()
            .iter()
            .filter(|column| !key.contains(&column.name))
            .map(|column| format!("{0}=excluded.{0}", column.name))
            .collect();
        let (key, updates) = (key.join(","), updates.join(","));
        format!(" ON CONFLICT ({key}) DO UPDATE SET {updates}")
    }
}

/// The names of columns, separated by commas.
pub(crate) fn names(columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    names.join(",")
}

/// Receives the values of rows, in the order of the table's columns.
pub(crate) trait Values<'r> {
    /// The table's name, for errors.
    fn table(&self) -> &'static str;
    /// A number or NULL.
    fn signed(&mut self, value: Option<i64>) -> Result<(), StoreError>;
    /// Text or NULL.
    fn text(&mut self, value: Option<&'r str>) -> Result<(), StoreError>;
    /// Bytes or NULL.
    fn bytes(&mut self, value: Option<&'r [u8]>) -> Result<(), StoreError>;

    /// A number that is not negative, or NULL; `column` only names it in an error.
    fn number(&mut self, column: &'static str, value: Option<u64>) -> Result<(), StoreError> {
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
}

/// A type that a column may have.
#[diagnostic::on_unimplemented(
    message = "no column of a table can hold a `{Self}`",
    label = "a column holds `u64`, `u32`, `String`, `Vec<u8>`, or an `Option` of one or of `i64`"
)]
pub(crate) trait Cell: Sized {
    /// The type of the column.
    const KIND: Kind;

    /// Binds the value.
    fn bind<'r>(
        &'r self,
        column: &'static str,
        values: &mut dyn Values<'r>,
    ) -> Result<(), StoreError>;

    /// Reads the value.
    fn read<R: Record>(cells: &Cells<'_, R>, column: &'static str) -> Result<Self, StoreError>;
}

/// Implements [`Cell`] for a type: its kind, the method of [`Cells`] that reads it, and how it is
/// bound.
macro_rules! cell {
    ($type:ty : $kind:ident, $read:ident, |$value:ident, $column:ident, $values:ident| $bind:expr) => {
        impl Cell for $type {
            const KIND: Kind = Kind::$kind;

            fn bind<'r>(
                &'r self,
                $column: &'static str,
                $values: &mut dyn Values<'r>,
            ) -> Result<(), StoreError> {
                let $value = self;
                $bind
            }

            fn read<R: Record>(
                cells: &Cells<'_, R>,
                column: &'static str,
            ) -> Result<Self, StoreError> {
                cells.$read(column)
            }
        }
    };
}

cell!(u64: Number, number, |cell, name, values| values.number(name, Some(*cell)));
cell!(u32: Number, small, |cell, name, values| values.number(name, Some((*cell).into())));
cell!(Option<u64>: Number, maybe_number, |cell, name, values| values.number(name, *cell));
cell!(Option<i64>: Number, maybe_signed, |cell, _name, values| values.signed(*cell));
cell!(String: Text, text, |cell, _name, values| values.text(Some(cell)));
cell!(Option<String>: Text, maybe_text, |cell, _name, values| values.text(cell.as_deref()));
cell!(Vec<u8>: Bytes, bytes, |cell, _name, values| values.bytes(Some(cell)));
cell!(Option<Vec<u8>>: Bytes, maybe_bytes, |cell, _name, values| values.bytes(cell.as_deref()));

/// Defines the row of a table: `field: type` under its doc comment, for each column. The type
/// decides how the column is bound and read (see [`Cell`]).
///
/// `upsert (key)` says that a row replaces the one with the same key, `insert (key)` that rows are
/// only added; a key also identifies rows in errors. `with column = TEXT` adds a column that is the
/// same in all rows and no field. Fields under `generated` are chosen by the database.
macro_rules! table {
    (
        $(#[$about:meta])+
        $public:vis struct $row:ident in $table:literal $(with $constant:ident = $text:ident)?,
        $how:ident ($($key:ident),+) {
            $(
                $(#[doc = $meaning:literal])+
                $field:ident: $type:ty,
            )+
            $(generated {
                $(
                    $(#[doc = $generated_meaning:literal])+
                    $generated:ident: $generated_type:ty,
                )+
            })?
        }
    ) => {
        $(#[$about])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        $public struct $row {
            $( $(#[doc = $meaning])+ $public $field: $type, )+
            $($( $(#[doc = $generated_meaning])+ $public $generated: $generated_type, )+)?
        }

        impl $crate::sql::table::TableRow for $row {
            const TABLE: &'static str = $table;
            const KEY: &'static [&'static str] = &[$(stringify!($key)),+];
            const REPLACES: bool = $crate::sql::table::table!(@replaces $how);

            fn columns() -> Vec<$crate::sql::table::Column> {
                use $crate::sql::table::Column;
                vec![
                    $( Column::constant(stringify!($constant)), )?
                    $( Column::field::<$type>(stringify!($field)), )+
                    $($( Column::generated::<$generated_type>(stringify!($generated)), )+)?
                ]
            }

            fn bind<'r>(
                &'r self,
                values: &mut dyn $crate::sql::table::Values<'r>,
            ) -> Result<(), $crate::StoreError> {
                use $crate::sql::table::Cell;
                $( values.text(Some($text))?; )?
                $( self.$field.bind(stringify!($field), values)?; )+
                Ok(())
            }

            fn read<R: $crate::sql::Record>(
                cells: &$crate::sql::Cells<'_, R>,
            ) -> Result<Self, $crate::StoreError> {
                use $crate::sql::table::Cell;
                Ok(Self {
                    $( $field: Cell::read(cells, stringify!($field))?, )+
                    $($( $generated: Cell::read(cells, stringify!($generated))?, )+)?
                })
            }
        }
    };
    (@replaces upsert) => { true };
    (@replaces insert) => { false };
}

pub(super) use table;

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "o";

    table! {
        /// A row.
        struct ThingRow in "things" with owner = OWNER, upsert (a) {
            /// A number.
            a: u64,
            /// Text.
            b: Option<String>,
            generated {
                /// Another number.
                c: u32,
            }
        }
    }

    table! {
        /// A row that replaces no other.
        struct LineRow in "lines", insert (a) {
            /// Bytes.
            a: Vec<u8>,
        }
    }

    /// Shows the bound values.
    #[derive(Default)]
    struct Shown(Vec<String>);

    impl<'r> Values<'r> for Shown {
        fn table(&self) -> &'static str {
            ThingRow::TABLE
        }

        fn signed(&mut self, value: Option<i64>) -> Result<(), StoreError> {
            self.0.push(format!("{value:?}"));
            Ok(())
        }

        fn text(&mut self, value: Option<&'r str>) -> Result<(), StoreError> {
            self.0.push(format!("{value:?}"));
            Ok(())
        }

        fn bytes(&mut self, value: Option<&'r [u8]>) -> Result<(), StoreError> {
            self.0.push(format!("{value:?}"));
            Ok(())
        }
    }

    #[test]
    fn constants_are_written_and_generated_columns_are_read() {
        assert_eq!(names(&ThingRow::written()), "owner,a,b");
        assert_eq!(ThingRow::list("t."), "t.a, t.b, t.c");
        let (text, _) = ThingRow::select("WHERE a = $1").parts();
        assert_eq!(text.as_str(), "SELECT a, b, c FROM things WHERE a = $1");
    }

    #[test]
    fn a_replacement_does_not_update_the_key() {
        assert_eq!(
            ThingRow::replacement(),
            " ON CONFLICT (owner,a) DO UPDATE SET b=excluded.b"
        );
        assert_eq!(LineRow::replacement(), "");
    }

    #[test]
    fn values_are_bound_in_the_order_of_the_columns() {
        let mut shown = Shown::default();
        let mut row = ThingRow {
            a: 7,
            b: None,
            c: 0,
        };
        row.bind(&mut shown).unwrap();
        assert_eq!(shown.0, ["Some(\"o\")", "Some(7)", "None"]);
        row.a = u64::MAX;
        let error = row.bind(&mut shown).unwrap_err().to_string();
        assert!(error.contains("things") && error.contains('a'), "{error}");
    }
}
