//! Pods to be deleted: those without a sandbox, and those whose deletion failed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// First and longest pause before a deletion is retried.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Pods to be deleted by name, with the next attempt's time and the pause after it.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Mutex<BTreeMap<String, (Instant, Duration)>>);

impl Orphans {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, Duration)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a pod to be deleted after a time.
    pub(crate) fn put(&self, pod: &str, after: Duration) {
        let due = (Instant::now() + after, AGAIN.0);
        self.lock().entry(pod.to_owned()).or_insert(due);
    }

    /// Pods that are due.
    pub(crate) fn due(&self) -> Vec<String> {
        let now = Instant::now();
        let all = self.lock();
        let due = all.iter().filter(|(_, (due, _))| *due <= now);
        due.map(|(pod, _)| pod.clone()).collect()
    }

    /// Schedules a retry for a pod.
    pub(crate) fn failed(&self, pod: &str) {
        if let Some((due, pause)) = self.lock().get_mut(pod) {
            *due = Instant::now() + *pause;
            *pause = (*pause * 2).min(AGAIN.1);
        }
    }

    /// Removes a deleted pod.
    pub(crate) fn deleted(&self, pod: &str) {
        self.lock().remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_deletions_are_retried_with_growing_pauses() {
        let orphans = Orphans::default();
        orphans.put("later", AGAIN.1);
        orphans.put("now", Duration::ZERO);
        // Its time does not change.
        orphans.put("now", AGAIN.1);
        assert_eq!(orphans.due(), ["now"]);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let before = Instant::now();
            orphans.failed("now");
            assert!(orphans.due().is_empty());
            pauses.push((orphans.lock()["now"].0 - before).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        orphans.deleted("now");
        assert_eq!(orphans.lock().len(), 1);
    }
}
