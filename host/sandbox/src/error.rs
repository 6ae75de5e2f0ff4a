//! Errors of sandboxes.

use std::io;

use crate::shares::Shared;

/// Errors of operations on sandboxes.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This machine does not support sandboxes.
    #[error("this machine can't run sandboxes: {0}")]
    Machine(io::Error),
    /// The limit on sandboxes is reached.
    #[error("sandbox limit reached ({0}); remove one, or try again later")]
    Full(usize),
    /// A tenant has used its share.
    #[error(
        "the tenant `{tenant}` has reached its share of {}: {has} of {most}; {}{}",
        of.what(), of.remedy(), raise(tenant, *of)
    )]
    BeyondShare {
        /// The tenant.
        tenant: String,
        /// The shared resource.
        of: Shared,
        /// The amount that the tenant uses.
        has: u64,
        /// The tenant's share.
        most: u64,
    },
    /// Snapshots and copies have used their disk space.
    #[error(
        "snapshots and copies of sandboxes use {0} of {1} bytes; remove snapshots or forked sandboxes, or raise sandboxes.copies_bytes_max"
    )]
    CopiesFull(u64, u64),
    /// The output of commands, or of shells, has used its memory.
    #[error(
        "commands or shells in sandboxes reserve {0} of {1} bytes for their output; end some, or try again later"
    )]
    OutputsFull(u64, u64),
    /// The platform has no room for another sandbox.
    #[error("there is no room for another sandbox: {0}; remove some, or try again later")]
    NoRoom(String),
    /// The platform does not support the operation; the text includes the remedy.
    #[error("{0}")]
    Unsupported(String),
    /// The sandbox does not exist, or was removed.
    #[error("there is no sandbox {0}")]
    Unknown(String),
    /// The image does not exist.
    #[error("there is no image or snapshot {0}; import an image first")]
    ImageUnknown(String),
    /// The limit on snapshots is reached.
    #[error("snapshot limit reached ({0}); remove one")]
    SnapshotsFull(usize),
    /// The snapshot does not exist, or was removed.
    #[error("there is no snapshot {0}")]
    SnapshotUnknown(String),
    /// It could not be prepared.
    #[error("the sandbox could not be prepared: {0}")]
    Preparation(String),
    /// Its first process has ended, and all others with it.
    #[error("the sandbox's processes have ended")]
    Gone,
    /// A command can't be started.
    #[error("{0}")]
    Command(String),
    /// An invalid value: its name, the problem and the remedy.
    #[error("`{0}` {1}")]
    Value(&'static str, String),
    /// A file operation failed.
    #[error("{path}: {error}")]
    File {
        /// The path as written by the caller.
        path: String,
        /// The cause.
        error: io::Error,
    },
    /// An error of the system.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// How the tenant's share can be raised, if it can.
fn raise(tenant: &str, of: Shared) -> String {
    of.limit().map_or_else(String::new, |limit| {
        format!(
            ", or ask an admin of the daemon to raise its limit: treadle access tenants set {tenant} --limit {limit}=N"
        )
    })
}
