//! Common parts of the columns of all worlds.
//!
//! The host, native policies and guests share these structures: a column is a slice, so that
//! nothing is copied on the way to a policy except by the sandbox.

use crate::PolicyError;

/// Defines a structure of columns: those in `rows` have one entry per row, those in `beside` have
/// other shapes. `check` is a function that checks further conditions on the columns.
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $name:ident
        rows {
            $(#[$first_meta:meta])* $first:ident: $first_entry:ty,
            $($(#[$column_meta:meta])* $column:ident: $entry:ty,)*
        }
        $(beside { $($(#[$beside_meta:meta])* $beside:ident: $beside_type:ty,)* })?
        $(check $check:expr;)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $name<'a> {
            $(#[$first_meta])*
            pub $first: &'a [$first_entry],
            $($(#[$column_meta])* pub $column: &'a [$entry],)*
            $($($(#[$beside_meta])* pub $beside: $beside_type,)*)?
            /// Further columns one after the other, in the order of
            /// [`Policy::COLUMNS`](crate::Policy::COLUMNS).
            pub extra: &'a [f32],
        }

        impl<'a> $name<'a> {
            /// Number of rows.
            pub fn len(&self) -> usize {
                self.$first.len()
            }

            /// Whether there are no rows.
            pub fn is_empty(&self) -> bool {
                self.$first.is_empty()
            }

            /// The extra column with this index; `None` if there are fewer.
            pub fn extra_column(&self, index: usize) -> Option<&'a [f32]> {
                $crate::columns::extra_column(self.extra, self.len(), index)
            }

            /// Checks that all columns have the same length and that `extra` has this many columns.
            /// Guests only get calls that pass.
            ///
            /// # Errors
            /// [`PolicyError::invalid_input`](crate::PolicyError::invalid_input),
            /// naming the column.
            pub fn check(&self, extra_columns: usize) -> Result<(), $crate::PolicyError> {
                use $crate::columns::check_length;
                $(check_length(stringify!($column), self.$column.len(), self.len())?;)*
                $({
                    let check: fn(&Self) -> Result<(), $crate::PolicyError> = $check;
                    check(self)?;
                })?
                check_length("extra", self.extra.len(), self.len().saturating_mul(extra_columns))
            }
        }
    };
}

pub(crate) use columns;

pub(crate) fn extra_column(extra: &[f32], rows: usize, index: usize) -> Option<&[f32]> {
    let start = index.checked_mul(rows)?;
    extra.get(start..start.checked_add(rows)?)
}

pub(crate) fn check_length(column: &str, found: usize, expected: usize) -> Result<(), PolicyError> {
    if found == expected {
        return Ok(());
    }
    Err(PolicyError::invalid_input(format!(
        "column {column} has {found} entries where {expected} belong; pass one entry per row"
    )))
}

#[cfg(test)]
mod tests {
    use crate::ActingColumns;

    #[test]
    fn a_short_column_is_named() {
        let programs = ActingColumns {
            tokens: &[1, 2],
            phase_ms: &[0],
            extra: &[],
        };
        let error = programs.check(0).unwrap_err();
        assert_eq!(error.code, "invalid-input");
        assert!(error.message.contains("phase_ms"), "{error}");
    }

    #[test]
    fn extra_is_column_after_column() {
        let programs = ActingColumns {
            tokens: &[1, 2],
            phase_ms: &[0, 0],
            extra: &[1.0, 2.0, 3.0, 4.0],
        };
        assert_eq!(programs.check(2), Ok(()));
        assert!(programs.check(1).is_err());
        assert_eq!(programs.extra_column(1), Some(&[3.0, 4.0][..]));
        assert_eq!(programs.extra_column(2), None);
    }
}
