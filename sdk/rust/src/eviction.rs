//! The world `eviction`: which programs keep their place in a worker's KV cache,
//! and which come back first.

use crate::columns::columns;
use crate::{Policy, PolicyError};

columns! {
    /// Acting programs on one worker, one row each.
    ActingColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// Time in the tool call so far, in milliseconds.
        phase_ms: u64,
    }
}

columns! {
    /// Active programs on one worker, one row each.
    ActiveColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// 1 while acting, 0 while reasoning.
        acting: u8,
        /// Time in the present phase, in milliseconds.
        phase_ms: u64,
        /// LLM calls finished so far.
        steps: u32,
    }
}

columns! {
    /// Waiting programs, paused or never started, one row each.
    WaitingColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// 1 when an LLM call is ready to be sent, 0 while an action runs.
        reasoning: u8,
        /// Time in the waiting queue, in milliseconds.
        waited_ms: u64,
        /// LLM calls finished so far.
        steps: u32,
    }
}

columns! {
    /// Services that may be unloaded to make room, one row each.
    ServiceColumns
    rows {
        /// Memory that it holds.
        bytes: u64,
        /// Time since it was used last, in milliseconds.
        idle_ms: u64,
        /// Time to load it again, in milliseconds.
        load_ms: u64,
        /// Times that it was used in the last hour.
        uses: u32,
    }
}

/// A policy of the world `eviction`. Answers depend on nothing but the
/// configuration, the columns and [`host::now_ms`](crate::host::now_ms).
pub trait EvictionPolicy: Policy {
    /// The share of each acting program's tokens that counts against capacity:
    /// within 0 and 1, and no larger after a longer time in the same tool call.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per active program; the highest is paused first, on equal
    /// scores the first row.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per waiting program; the highest is restored first, on equal
    /// scores the first row.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per service; the highest is dropped first, on equal scores the
    /// first row. The default leaves it to the host.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn drop_order(&mut self, services: &ServiceColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let _ = services;
        Err(PolicyError::not_supported())
    }
}
