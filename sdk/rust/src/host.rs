//! What treadle offers to a policy: a log, the time of the decision, a random stream,
//! the configuration and a store of values. There is nothing else.
//!
//! In a guest these are the imports of `treadle:policy/host`. In a native build they
//! are twins of the same behaviour that belong to the thread and are set with
//! [`set_now_ms`], [`set_seed`], [`set_config`] and [`clear_state`].

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Every detail.
    Trace,
    /// For the author of the policy.
    Debug,
    /// Worth knowing.
    Info,
    /// Unusual, and handled.
    Warn,
    /// Went wrong.
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
