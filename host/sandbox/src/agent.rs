//! What all sandboxes of an agent share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::platform::Platform;
use crate::shares::Shared;
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
    /// Tenants whose sandboxes have more on disk than their share.
    pub(crate) beyond: Mutex<BTreeMap<String, Beyond>>,
}

/// A tenant whose sandboxes have more on disk than its share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    pub(crate) has: u64,
    pub(crate) most: u64,
    /// With so much another one is stopped.
    pub(crate) next: u64,
}

impl Agent {
    /// Whether a tenant's sandboxes may begin to write.
    pub(crate) fn check_share(&self, tenant: &str) -> Result<(), SandboxError> {
        let beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        match beyond.get(tenant) {
            None => Ok(()),
            Some(Beyond { has, most, .. }) => Err(SandboxError::BeyondShare {
                tenant: tenant.to_owned(),
                of: Shared::FilesBytes,
                has: *has,
                most: *most,
            }),
        }
    }
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
