//! The world `eviction`: which programs keep their place in a worker's KV cache,
//! and which come back first.

use crate::PolicyError;

/// Acting programs on one worker, one row each; all columns have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActingColumns<'a> {
    /// Context length in tokens.
    pub tokens: &'a [u64],
    /// Time in the tool call so far.
    pub phase_ms: &'a [u64],
    /// Further columns one after the other, in the order agreed in `configure`.
    pub extra: &'a [f32],
}

/// Active programs on one worker, one row each; all columns have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActiveColumns<'a> {
    /// Context length in tokens.
    pub tokens: &'a [u64],
    /// 1 while acting, 0 while reasoning.
    pub acting: &'a [u8],
    /// Time in the present phase.
    pub phase_ms: &'a [u64],
    /// LLM calls finished so far.
    pub steps: &'a [u32],
    /// Further columns one after the other, in the order agreed in `configure`.
    pub extra: &'a [f32],
}

/// Waiting programs, one row each; all columns have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitingColumns<'a> {
    /// Context length in tokens.
    pub tokens: &'a [u64],
    /// 1 when an LLM call is ready to be sent, 0 while an action runs.
    pub reasoning: &'a [u8],
    /// Time in the waiting queue.
    pub waited_ms: &'a [u64],
    /// LLM calls finished so far.
    pub steps: &'a [u32],
    /// Further columns one after the other, in the order agreed in `configure`.
    pub extra: &'a [f32],
}

/// A policy of the world `eviction`. Answers depend on nothing but the
/// configuration, the columns and [`host::now_ms`](crate::host::now_ms).
pub trait EvictionPolicy {
    /// A policy with this configuration, a JSON object. `{}` means the defaults.
    ///
    /// # Errors
    /// [`PolicyError::invalid_config`], naming the key and the remedy.
    fn configure(json: &str) -> Result<Self, PolicyError>
    where
        Self: Sized;

    /// The share of each acting program's tokens that counts against capacity:
    /// within 0 and 1, and no larger after a longer time in the same tool call.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn weigh(&self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per active program; the highest is paused first.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn pause_order(&self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per waiting program; the highest is restored first.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn restore_order(&self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError>;
}

macro_rules! columns {
    ($name:ident: $($column:ident),*) => {
        impl<'a> $name<'a> {
            /// Number of rows.
            pub fn len(&self) -> usize {
                self.tokens.len()
            }

            /// Whether there are no rows.
            pub fn is_empty(&self) -> bool {
                self.tokens.is_empty()
            }

            /// The `index`th of the extra columns, `None` when there are not so many.
            pub fn extra_column(&self, index: usize) -> Option<&'a [f32]> {
                let start = index.checked_mul(self.len())?;
                self.extra.get(start..start.checked_add(self.len())?)
            }

            /// Checks that all columns are of one length and that `extra` holds as
            /// many columns as were agreed.
            ///
            /// # Errors
            /// [`PolicyError::invalid_input`], naming the column.
            pub fn check(&self, extra_columns: usize) -> Result<(), PolicyError> {
                $(check_length(stringify!($column), self.$column.len(), self.len())?;)*
                check_length("extra", self.extra.len(), self.len() * extra_columns)
            }
        }
    };
}

columns!(ActingColumns: phase_ms);
columns!(ActiveColumns: acting, phase_ms, steps);
columns!(WaitingColumns: reasoning, waited_ms, steps);

fn check_length(column: &str, found: usize, expected: usize) -> Result<(), PolicyError> {
    if found == expected {
        return Ok(());
    }
    Err(PolicyError::invalid_input(format!(
        "column {column} has {found} entries where {expected} belong; pass one entry per program"
    )))
}

/// Exports a type that implements [`EvictionPolicy`] as a component of the world
/// `eviction`. Once per crate, at its root. Adds nothing to a native build.
#[macro_export]
macro_rules! eviction_policy {
    ($policy:ty) => {
        #[cfg(target_family = "wasm")]
        mod treadle_guest {
            #![allow(unsafe_code, missing_docs, unused_imports, clippy::all, clippy::pedantic)]
            use super::*;
            use $crate::guest::{self, eviction as bindings};

            struct Guest;

            ::std::thread_local! {
                static POLICY: guest::Slot<$policy> = const { guest::Slot::new() };
            }

            impl bindings::plugin::Guest for Guest {
                fn describe() -> bindings::Description {
                    bindings::describe(
                        env!("CARGO_PKG_NAME"),
                        env!("CARGO_PKG_VERSION"),
                        env!("CARGO_PKG_DESCRIPTION"),
                    )
                }

                fn configure(json: String) -> Result<(), bindings::Failure> {
                    bindings::configure(&POLICY, &json)
                }
            }

            impl bindings::world::Guest for Guest {
                fn weigh(
                    tokens: Vec<u64>,
                    phase_ms: Vec<u64>,
                    extra: Vec<f32>,
                ) -> Result<Vec<f64>, bindings::Failure> {
                    bindings::weigh(&POLICY, &tokens, &phase_ms, &extra)
                }

                fn pause_order(
                    tokens: Vec<u64>,
                    acting: Vec<u8>,
                    phase_ms: Vec<u64>,
                    steps: Vec<u32>,
                    extra: Vec<f32>,
                ) -> Result<Vec<f64>, bindings::Failure> {
                    bindings::pause_order(&POLICY, &tokens, &acting, &phase_ms, &steps, &extra)
                }

                fn restore_order(
                    tokens: Vec<u64>,
                    reasoning: Vec<u8>,
                    waited_ms: Vec<u64>,
                    steps: Vec<u32>,
                    extra: Vec<f32>,
                ) -> Result<Vec<f64>, bindings::Failure> {
                    bindings::restore_order(&POLICY, &tokens, &reasoning, &waited_ms, &steps, &extra)
                }
            }

            $crate::__export_eviction_impl!(Guest with_types_in $crate::guest::eviction::raw);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

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
