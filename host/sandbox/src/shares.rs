//! What a tenant may have of what all tenants share.

use std::fmt::Debug;

/// Something that tenants share.
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
}

impl Shared {
    /// What it is, in the plural.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::Snapshots => "snapshots",
            Self::CopiesBytes => "bytes of snapshots and copies",
            Self::FilesBytes => "bytes of sandboxes' files",
        }
    }

    /// What its owner can do to have less of it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Sandboxes => "remove some",
            Self::Snapshots => "remove some snapshots",
            Self::CopiesBytes => {
                "remove snapshots or forked sandboxes, and try again a minute later"
            }
            Self::FilesBytes => "remove sandboxes, or files in them",
        }
    }

    /// The tenant's limit that is another share than an equal one.
    pub(crate) fn limit(self) -> Option<&'static str> {
        match self {
            Self::Sandboxes => Some("sandboxes"),
            Self::Snapshots => None,
            Self::CopiesBytes => Some("snapshot_bytes"),
            Self::FilesBytes => Some("sandbox_bytes"),
        }
    }
}

/// Who knows what a tenant may have.
pub trait Shares: Debug + Send + Sync {
    /// The most that a tenant may have of `all`, the total for all tenants.
    fn most(&self, tenant: &str, of: Shared, all: u64) -> u64;
}

/// Every tenant may have all there is: there is one.
#[derive(Clone, Copy, Debug)]
pub struct Undivided;

impl Shares for Undivided {
    fn most(&self, _: &str, _: Shared, all: u64) -> u64 {
        all
    }
}
