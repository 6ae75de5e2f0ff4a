//! What all sandboxes of an agent share.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::cgroup::{Cgroups, Limits};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::images::Images;
use crate::inside::IDS;
use crate::record::{SandboxSpec, now_us};
use crate::turns::Turns;
use crate::wire::Guard;

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) config: SandboxConfig,
    pub(crate) cgroups: Cgroups,
    pub(crate) images: Images,
    /// Turns of sandboxes to be made.
    pub(crate) turns: Turns,
    /// How many user namespaces were made.
    pub(crate) namespaces: AtomicU32,
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
    /// One became ready that was asked for at this time, in microseconds since 1970.
    pub(crate) fn prepared(&self, created_at_us: u64) {
        let took_us = now_us().saturating_sub(created_at_us);
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

impl Agent {
    pub(crate) fn is_without_cgroups(&self) -> bool {
        self.config.without.contains(&Guard::Cgroup)
    }

    /// A user of the machine that no other sandbox's namespace is counted to, as long as fewer are
    /// there than users.
    pub(crate) fn owner(&self) -> u32 {
        self.config.uid + self.namespaces.fetch_add(1, Ordering::Relaxed) % IDS
    }

    pub(crate) fn limits(&self, spec: &SandboxSpec) -> Limits {
        Limits {
            memory_bytes: spec.memory_bytes.unwrap_or(self.config.memory_bytes),
            processes: self.config.processes_max,
        }
    }
}

/// Runs something to its end, though its caller may be gone before.
pub(crate) async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
) -> Result<T, SandboxError> {
    let failed = |error| SandboxError::System("changing the sandbox", io::Error::other(error));
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(failed(error)))
}

/// Runs what waits for the disk aside.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
