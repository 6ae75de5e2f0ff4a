//! What treadle offers to a policy: a log and the time of the decision.
//!
//! In a guest these are the imports of `treadle:policy/host`. In a native build the
//! log goes to standard error and the time is what [`set_now_ms`] set last in the
//! same thread, 0 at first.

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

#[cfg(target_family = "wasm")]
pub use crate::guest::{log, now_ms};
#[cfg(not(target_family = "wasm"))]
pub use native::{log, now_ms, set_now_ms};

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::cell::Cell;

    use super::Level;

    thread_local! {
        static NOW_MS: Cell<u64> = const { Cell::new(0) };
    }

    /// Writes a line to the policy's log.
    pub fn log(level: Level, message: &str) {
        eprintln!("policy {level:?}: {message}");
    }

    /// The time of the decision in milliseconds since the job's clock began.
    pub fn now_ms() -> u64 {
        NOW_MS.get()
    }

    /// Sets the time that [`now_ms`] gives in this thread. Native builds only.
    pub fn set_now_ms(now_ms: u64) {
        NOW_MS.set(now_ms);
    }
}
