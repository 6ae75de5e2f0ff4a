//! What all sandboxes of an agent share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::SandboxConfig;
use crate::platform::Platform;
use crate::turns::Turns;

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) config: SandboxConfig,
    /// By which sandboxes live.
    pub(crate) clock: Clock,
    /// Where sandboxes are made.
    pub(crate) platform: Arc<dyn Platform>,
    /// Turns of sandboxes to be made.
    pub(crate) turns: Turns,
    /// What became of sandboxes that were asked for.
    pub(crate) preparations: Preparations,
}

/// What became of sandboxes that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Preparations {
    prepared: AtomicU64,
    prepared_us: AtomicU64,
    failed: AtomicU64,
}

/// What became of sandboxes that were asked for, since the agent began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Those that became ready.
    pub prepared: u64,
    /// How long that took, from when they were asked for, all together.
    pub prepared_in: Duration,
    /// Those that could not be made.
    pub failed: u64,
}

impl Preparations {
    /// One became ready, so long after it was asked for.
    pub(crate) fn prepared(&self, took_us: u64) {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        self.prepared_us.fetch_add(took_us, Ordering::Relaxed);
    }

    /// One could not be made.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counted(&self) -> Counters {
        Counters {
            prepared: self.prepared.load(Ordering::Relaxed),
            prepared_in: Duration::from_micros(self.prepared_us.load(Ordering::Relaxed)),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
