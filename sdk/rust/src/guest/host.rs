//! The imports of `treadle:policy/host`.

use super::plugin::raw::treadle::policy::host;
use super::plugin::raw::treadle::policy::types::LogLevel;
use crate::{PolicyError, host::Level};

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

/// The next number of the random stream.
pub fn random_u64() -> u64 {
    host::random_u64()
}

/// The configuration of the binding, a JSON object.
pub fn config() -> String {
    host::config()
}

/// A stored value, if there is one.
pub fn state_get(key: &str) -> Option<Vec<u8>> {
    host::state_get(key)
}

/// Stores a value.
///
/// # Errors
/// `state-full` if the limit on bytes or keys would be exceeded; nothing changes then.
pub fn state_set(key: &str, value: &[u8]) -> Result<(), PolicyError> {
    host::state_set(key, value).map_err(|failure| PolicyError::new(failure.code, failure.message))
}

/// Removes a value; true if there was one.
pub fn state_delete(key: &str) -> bool {
    host::state_delete(key)
}
