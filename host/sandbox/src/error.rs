//! Why something can't be done with sandboxes.

use std::io;

use crate::shares::Shared;

/// Why something can't be done with sandboxes.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This machine can't have sandboxes.
    #[error("this machine can't run sandboxes: {0}")]
    Machine(io::Error),
    /// As many as may be are there.
    #[error("{0} sandboxes are there, as many as may be; remove some, or try again later")]
    Full(usize),
    /// A tenant has its share.
    #[error(
        "the tenant `{tenant}` has {has} of {most} {}, its share; {}{}",
        of.what(), of.remedy(), raise(tenant, *of)
    )]
    BeyondShare {
        /// Whose share it is.
        tenant: String,
        /// Of what.
        of: Shared,
        /// How much it has.
        has: u64,
        /// How much it may have.
        most: u64,
    },
    /// Snapshots and copies take as much of the disk as they may.
    #[error(
        "snapshots and copies of sandboxes take {0} bytes of the {1} that they may; remove snapshots or forked sandboxes, or raise sandboxes.copies_bytes_max"
    )]
    CopiesFull(u64, u64),
    /// Where sandboxes are made there is no room for another one.
    #[error("there is no room for another sandbox: {0}; remove some, or try again later")]
    NoRoom(String),
    /// Where this sandbox is made nobody can do that: what, why, and the remedy.
    #[error("{0}")]
    Unsupported(String),
    /// No such sandbox, or it has gone.
    #[error("there is no sandbox {0}")]
    Unknown(String),
    /// No such image.
    #[error("there is no image or snapshot {0}; import an image first")]
    ImageUnknown(String),
    /// As many snapshots as may be are there.
    #[error("{0} snapshots are there, as many as may be; remove some")]
    SnapshotsFull(usize),
    /// No such snapshot, or it has gone.
    #[error("there is no snapshot {0}")]
    SnapshotUnknown(String),
    /// It could not be prepared.
    #[error("the sandbox could not be prepared: {0}")]
    Preparation(String),
    /// Its first process is gone, and all others with it.
    #[error("the sandbox's processes have ended")]
    Gone,
    /// A command can't be started.
    #[error("{0}")]
    Command(String),
    /// A value is out of its bounds: which one, and the remedy.
    #[error("`{0}` {1}")]
    Value(&'static str, String),
    /// A file can't be reached: its path, and why.
    #[error("{path}: {error}")]
    File {
        /// As the caller wrote it.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The system's error.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// How a tenant gets another share, where it can.
fn raise(tenant: &str, of: Shared) -> String {
    of.limit().map_or_else(String::new, |limit| {
        format!(
            ", or have an admin of the daemon set its limit: treadle access tenants set {tenant} --limit {limit}=N"
        )
    })
}
