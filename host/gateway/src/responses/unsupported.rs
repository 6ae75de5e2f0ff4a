//! Engines without `/v1/responses`, by URL.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an engine is remembered: later, another version may run at its URL.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Most engines that are remembered.
const ENGINES_MAX: usize = 4_096;

/// Engines without the path, and when that was found.
#[derive(Default)]
pub(crate) struct UnsupportedEngines(Mutex<HashMap<Box<str>, Instant>>);

impl UnsupportedEngines {
    /// Whether the engine is known to lack the path.
    pub(crate) fn contains(&self, url: &str) -> bool {
        let since = self.locked().get(url).copied();
        since.is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    /// Records that the engine lacks the path.
    pub(crate) fn insert(&self, url: &str) {
        let mut known = self.locked();
        if known.len() >= ENGINES_MAX {
            known.clear();
        }
        known.insert(url.into(), Instant::now());
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Box<str>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
