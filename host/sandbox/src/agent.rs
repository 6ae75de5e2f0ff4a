//! The state shared by all sandboxes of an agent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::SandboxConfig;
use crate::creation_queue::CreationQueue;
use crate::error::SandboxError;
use crate::platform::Platform;
use crate::shares::Shared;

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) config: SandboxConfig,
    /// The clock for the lifetimes of sandboxes.
    pub(crate) clock: Clock,
    /// The platform that sandboxes are made on.
    pub(crate) platform: Arc<dyn Platform>,
    /// Limits how many sandboxes are made at once.
    pub(crate) creations: CreationQueue,
    /// Counters of requested sandboxes.
    pub(crate) preparations: Preparations,
    /// Tenants whose sandboxes exceed their share of the disk.
    pub(crate) beyond: Mutex<BTreeMap<String, Beyond>>,
}

/// A tenant whose sandboxes exceed its share of the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    pub(crate) has: u64,
    pub(crate) most: u64,
    /// The size at which another sandbox is stopped.
    pub(crate) next: u64,
}

impl Agent {
    /// Whether a tenant's sandboxes may start writing.
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

/// Counters of requested sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Preparations {
    prepared: AtomicU64,
    prepared_us: AtomicU64,
    failed: AtomicU64,
}

/// Counts of requested sandboxes since the agent started.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Sandboxes that became ready.
    pub prepared: u64,
    /// Total time from their requests until they were ready.
    pub prepared_in: Duration,
    /// Sandboxes that could not be made.
    pub failed: u64,
}

impl Preparations {
    /// Counts a sandbox that became ready `took_us` after its request.
    pub(crate) fn prepared(&self, took_us: u64) {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        self.prepared_us.fetch_add(took_us, Ordering::Relaxed);
    }

    /// Counts a sandbox that could not be made.
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
