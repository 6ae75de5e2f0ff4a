//! The scheduler's clock: the wall clock at startup, then monotonic, and scaled by
//! `scheduler.time_scale` to match simulated engines.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use treadle_model::Timestamp;

/// A clock that never runs backwards, across restarts too.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    started: Instant,
    scale: f64,
}

impl Clock {
    /// A clock that starts now, after everything that happened until `latest`. Time without a daemon
    /// counts, and so does what the wall clock was set by since an earlier start; the core puts off
    /// the ends of silent programs by as much.
    pub fn start(latest: Timestamp, scale: f64) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let base = latest.max(Timestamp(unix.as_micros() as u64));
        Self {
            base,
            started: Instant::now(),
            scale,
        }
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.started.elapsed().as_secs_f64() * self.scale;
        Timestamp(self.base.0 + (elapsed * 1e6) as u64)
    }

    /// Real time until `at`; zero once that has passed.
    pub fn until(&self, at: Timestamp) -> Duration {
        let ahead = at.since(self.now()).micros() as f64 / self.scale;
        Duration::from_micros(ahead.ceil() as u64)
    }
}
