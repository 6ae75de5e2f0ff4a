//! Rate-limited log messages about reached limits.

use rustix::process::{Resource, getrlimit};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two messages about one limit.
const PAUSE: Duration = Duration::from_secs(10);
/// The process's limit on open files is reached (`EMFILE`).
const PROCESS_IS_FULL: i32 = 24;
/// The machine's limit on open files is reached (`ENFILE`).
const MACHINE_IS_FULL: i32 = 23;

/// How often something happened since the last message.
#[derive(Debug, Default)]
pub struct Rarely(Mutex<Occurrences>);

#[derive(Debug, Default)]
struct Occurrences {
    told: Option<Instant>,
    untold: u64,
}

impl Rarely {
    /// Nothing has happened yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Occurrences {
            told: None,
            untold: 0,
        }))
    }

    /// Counts an event; returns the count since the last message if a message is due.
    pub fn happens(&self) -> Option<u64> {
        self.happens_at(Instant::now())
    }

    fn happens_at(&self, now: Instant) -> Option<u64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.untold += 1;
        if seen
            .told
            .is_some_and(|told| now.duration_since(told) < PAUSE)
        {
            return None;
        }
        seen.told = Some(now);
        Some(std::mem::take(&mut seen.untold))
    }
}

/// Logs a connection that failed because of the limit on open files. Returns whether it did.
pub fn note_shortage(error: &io::Error) -> bool {
    static SHORT: Rarely = Rarely::new();
    let (whose, limit, remedy) = match error.raw_os_error() {
        Some(PROCESS_IS_FULL) => {
            let limit = getrlimit(Resource::Nofile).current;
            ("this process", limit, "ulimit -n, LimitNOFILE")
        }
        Some(MACHINE_IS_FULL) => ("this machine", None, "sysctl fs.file-max"),
        _ => return false,
    };
    if let Some(connections) = SHORT.happens() {
        tracing::warn!(
            connections, limit, %error,
            "connections failed: {whose} has reached its limit on open files; raise it ({remedy})"
        );
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_at_once_and_then_with_its_count() {
        let rarely = Rarely::new();
        let began = Instant::now();
        let after = |s: u64| rarely.happens_at(began + Duration::from_secs(s));
        let told: Vec<_> = [0, 1, 9, 10, 11, 30].into_iter().map(after).collect();
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
