//! Errors of transfers.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::CopyId;

/// Why a transfer failed. The program's KV is then recomputed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The worker's engine does not support the operation.
    #[error("{worker} does not support this: {why}")]
    Unsupported {
        /// The worker's URL.
        worker: Box<str>,
        /// The missing requirement, with the remedy.
        why: Box<str>,
    },
    /// The request lacks a field that this engine needs.
    #[error("the request needs `{field}`: {why}")]
    Incomplete {
        /// The field.
        field: &'static str,
        /// Why it is needed.
        why: &'static str,
    },
    /// The handle is invalid, or does not match the stored copy.
    #[error("the handle does not match a copy here: {why}")]
    WrongHandle {
        /// The mismatch.
        why: Box<str>,
    },
    /// The copy belongs to another program.
    #[error("the copy is of {copy}, not of {wanted}")]
    OtherProgram {
        /// The program that it belongs to.
        copy: treadle_model::ProgramId,
        /// The requested program.
        wanted: treadle_model::ProgramId,
    },
    /// The copy was made with another model or another layout.
    #[error("the copy's {field} is {copy:?}, the worker's is {worker:?}")]
    OtherTags {
        /// The tag that differs.
        field: &'static str,
        /// The copy's value.
        copy: Box<str>,
        /// The worker's value.
        worker: Box<str>,
    },
    /// The tokens are not the program's.
    #[error("the KV does not match the program's tokens: {why}")]
    OtherPrefix {
        /// The difference.
        why: Box<str>,
    },
    /// The copy no longer exists.
    #[error("the copy {id} is gone: {why}")]
    Gone {
        /// Its id.
        id: CopyId,
        /// Why it is gone.
        why: Box<str>,
    },
    /// The copy's bytes differ from those that were written.
    #[error("the copy {id} is damaged: {why}")]
    Damaged {
        /// Its id.
        id: CopyId,
        /// The damage that was found.
        why: Box<str>,
    },
    /// The host tier can't make enough room.
    #[error(
        "the host tier has no room for {needed_bytes} bytes: of {bytes_max} bytes, {held_bytes} \
         are in transfer; raise its bound or have fewer transfers at once"
    )]
    TierFull {
        /// Bytes of the new copy.
        needed_bytes: u64,
        /// Bytes that can't be evicted now.
        held_bytes: u64,
        /// The tier's limit.
        bytes_max: u64,
    },
    /// Too many transfers wait for this worker.
    #[error("{worker} already has {waiting} waiting transfers; the limit is reached")]
    Busy {
        /// The worker's URL.
        worker: Box<str>,
        /// The number of waiting transfers.
        waiting: usize,
    },
    /// The operation timed out.
    #[error("{what} took longer than {} ms", after.as_millis())]
    Timeout {
        /// The operation.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The engine or node does not answer.
    #[error("no answer from {url}: {why}")]
    Unreachable {
        /// The engine or node.
        url: Box<str>,
        /// The cause.
        why: Box<str>,
    },
    /// The engine or node returned an error.
    #[error("{url} returned {status}: {message}")]
    Refused {
        /// The engine or node.
        url: Box<str>,
        /// Its HTTP status.
        status: u16,
        /// Its message.
        message: Box<str>,
    },
    /// The engine reported success, but took nothing or the wrong content.
    #[error("{url} did not take the copy: {why}")]
    NotTaken {
        /// The engine.
        url: Box<str>,
        /// The sign of it.
        why: Box<str>,
    },
    /// Another node's tier returned an error.
    #[error("the tier at {node} refused ({code}): {message}")]
    Node {
        /// The node.
        node: Box<str>,
        /// The code of its error.
        code: Box<str>,
        /// Its message.
        message: Box<str>,
    },
    /// A file operation of the tier failed.
    #[error("{what} {path}: {source}")]
    File {
        /// The operation.
        what: &'static str,
        /// Its file or folder.
        path: Box<str>,
        /// The system's error.
        source: std::io::Error,
    },
    /// An internal error of treadle.
    #[error("{what}: {why}")]
    Internal {
        /// The operation.
        what: &'static str,
        /// The cause.
        why: Box<str>,
    },
}

impl TransferError {
    /// A short name for logs, metrics and events.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "unsupported",
            Self::Incomplete { .. } => "incomplete",
            Self::WrongHandle { .. } => "wrong-handle",
            Self::OtherProgram { .. } => "other-program",
            Self::OtherTags { .. } => "other-tags",
            Self::OtherPrefix { .. } => "other-prefix",
            Self::Gone { .. } => "gone",
            Self::Damaged { .. } => "damaged",
            Self::TierFull { .. } => "tier-full",
            Self::Busy { .. } => "busy",
            Self::Timeout { .. } => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { .. } => "refused",
            Self::NotTaken { .. } => "not-taken",
            Self::Node { code, .. } => known(code),
            Self::File { .. } => "file",
            Self::Internal { .. } => "internal",
        }
    }

    pub(crate) fn wrong_handle(why: impl Into<Box<str>>) -> Self {
        Self::WrongHandle { why: why.into() }
    }

    pub(crate) fn gone(id: CopyId, why: impl Into<Box<str>>) -> Self {
        Self::Gone {
            id,
            why: why.into(),
        }
    }

    pub(crate) fn damaged(id: CopyId, why: impl Into<Box<str>>) -> Self {
        Self::Damaged {
            id,
            why: why.into(),
        }
    }

    pub(crate) fn unsupported(worker: &str, why: impl Into<Box<str>>) -> Self {
        Self::Unsupported {
            worker: worker.into(),
            why: why.into(),
        }
    }

    pub(crate) fn unreachable(url: &str, why: impl fmt::Display) -> Self {
        Self::Unreachable {
            url: url.into(),
            why: why.to_string().into(),
        }
    }

    pub(crate) fn not_taken(url: &str, why: impl Into<Box<str>>) -> Self {
        Self::NotTaken {
            url: url.into(),
            why: why.into(),
        }
    }

    pub(crate) fn internal(what: &'static str, why: impl fmt::Display) -> Self {
        Self::Internal {
            what,
            why: why.to_string().into(),
        }
    }

    /// Converts a file system error into one of this crate.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string().into();
        move |source| Self::File { what, path, source }
    }
}

/// The code of another node's error, if this version knows it.
fn known(code: &str) -> &'static str {
    const CODES: &[&str] = &[
        "wrong-handle",
        "gone",
        "damaged",
        "tier-full",
        "timeout",
        "unreachable",
        "busy",
        "file",
    ];
    CODES
        .iter()
        .find(|known| **known == code)
        .copied()
        .unwrap_or("node")
}
