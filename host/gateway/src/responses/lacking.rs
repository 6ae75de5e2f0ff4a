//! Engines that were found to have no `/v1/responses`, by their URLs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After this an engine is asked again: another version may answer at its URL.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Engines that are remembered, at most.
const ENGINES_MAX: usize = 4_096;

/// Which engines, and since when it is known.
#[derive(Default)]
pub(crate) struct Lacking(Mutex<HashMap<Box<str>, Instant>>);

impl Lacking {
    /// Whether the engine has no such path, as far as it is known.
    pub(crate) fn contains(&self, url: &str) -> bool {
        let since = self.locked().get(url).copied();
        since.is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    /// The engine has no such path.
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
