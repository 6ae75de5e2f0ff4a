//! The host's functions for policies: a log, the time of the decision, a random stream, the
//! configuration and a key-value store. There is nothing else.
//!
//! In a guest these are the imports of `treadle:policy/host`. In a native build they are
//! equivalents that are local to the thread, and set with [`set_now_ms`], [`set_seed`],
//! [`set_config`] and [`clear_state`].

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Every detail.
    Trace,
    /// For the author of the policy.
    Debug,
    /// Normal events of interest.
    Info,
    /// Unusual, but handled.
    Warn,
    /// Failures.
    Error,
}

#[cfg(not(target_family = "wasm"))]
mod native;

#[cfg(target_family = "wasm")]
pub use crate::guest::host::{config, log, now_ms, random_u64, state_delete, state_get, state_set};
#[cfg(not(target_family = "wasm"))]
pub use native::{
    STATE_BYTES_MAX, STATE_KEYS_MAX, clear_state, config, log, now_ms, random_u64, set_config,
    set_now_ms, set_seed, state_delete, state_get, state_set,
};
