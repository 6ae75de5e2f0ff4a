//! The guest's side of the component boundary. Reached through the macros of the
//! worlds; not for direct use.

pub mod eviction;

use std::cell::{OnceCell, RefCell};

use crate::{PolicyError, host::Level};

use eviction::raw::treadle::policy::host;
use eviction::raw::treadle::policy::types::LogLevel;

/// Writes a line to the policy's log.
pub fn log(level: Level, message: &str) {
    let level = match level {
        Level::Trace => LogLevel::Trace,
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
    };
    host::log(level, message);
}

/// The time of the decision in milliseconds since the job's clock began.
pub fn now_ms() -> u64 {
    host::now_ms()
}

/// Holds the configured policy of an instance.
pub struct Slot<P> {
    policy: RefCell<Option<P>>,
    panics_logged: OnceCell<()>,
}

impl<P> Slot<P> {
    /// Nothing configured yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            policy: RefCell::new(None),
            panics_logged: OnceCell::new(),
        }
    }

    /// Replaces the policy. The first call also sends panics to the log, because a
    /// guest has no standard error.
    pub fn set(&self, policy: P) {
        self.panics_logged.get_or_init(|| {
            std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
        });
        self.policy.replace(Some(policy));
    }

    /// Asks the policy.
    ///
    /// # Errors
    /// `failed` when `configure` has not succeeded before, else what `ask` gives.
    pub fn ask<T>(&self, ask: impl FnOnce(&P) -> Result<T, PolicyError>) -> Result<T, PolicyError> {
        match self.policy.borrow().as_ref() {
            Some(policy) => ask(policy),
            None => Err(PolicyError::failed(
                "asked before a successful configure; call plugin.configure first",
            )),
        }
    }
}
