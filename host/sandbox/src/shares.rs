//! Tenants' shares of common limits.

use std::fmt::Debug;

/// A resource that tenants share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shared {
    /// Sandboxes at once.
    Sandboxes,
    /// Snapshots.
    Snapshots,
    /// Bytes of snapshots and of other copies of sandboxes' files.
    CopiesBytes,
    /// Bytes of sandboxes' own files.
    FilesBytes,
    /// Bytes of memory of sandboxes' processes and of their files in memory.
    MemoryBytes,
    /// Bytes of memory for output of commands, or of shells, that is not read yet.
    OutputBytes,
}

impl Shared {
    /// Its name in the plural.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::Snapshots => "snapshots",
            Self::CopiesBytes => "bytes of snapshots and copies",
            Self::FilesBytes => "bytes of sandboxes' files",
            Self::MemoryBytes => "bytes of memory of sandboxes",
            Self::OutputBytes => "memory for output that is not read yet",
        }
    }

    /// How its owner can use less of it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Sandboxes => "remove some",
            Self::Snapshots => "remove some snapshots",
            Self::CopiesBytes => {
                "remove snapshots or forked sandboxes, and try again a minute later"
            }
            Self::FilesBytes => "remove sandboxes, or files in them",
            Self::MemoryBytes => "request less memory_bytes",
            Self::OutputBytes => "end some commands or shells",
        }
    }

    /// The name of the tenant's limit that overrides the equal share.
    pub(crate) fn limit(self) -> Option<&'static str> {
        match self {
            Self::Sandboxes => Some("sandboxes"),
            Self::Snapshots | Self::OutputBytes => None,
            Self::CopiesBytes => Some("snapshot_bytes"),
            Self::FilesBytes => Some("sandbox_bytes"),
            Self::MemoryBytes => Some("action_percent"),
        }
    }
}

/// Provides the shares of tenants.
pub trait Shares: Debug + Send + Sync {
    /// The most that a tenant may use of `all`, the total for all tenants.
    fn most(&self, tenant: &str, of: Shared, all: u64) -> u64;
}

/// Gives every tenant the total, if there is only one tenant.
#[derive(Clone, Copy, Debug)]
pub struct Undivided;

impl Shares for Undivided {
    fn most(&self, _: &str, _: Shared, all: u64) -> u64 {
        all
    }
}
