//! Why a transfer failed.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::CopyId;

/// Why a transfer failed. The program's KV is recomputed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The worker's engine can't do this.
    #[error("{worker} can't do this: {why}")]
    Unsupported {
        /// The worker's URL.
        worker: Box<str>,
        /// What is missing, with the remedy.
        why: Box<str>,
    },
    /// The request lacks what this engine needs.
    #[error("the request needs `{field}`: {why}")]
    Incomplete {
        /// The field.
        field: &'static str,
        /// What for.
        why: &'static str,
    },
    /// The handle is none, or not that of what is there.
    #[error("not a handle of a copy that is here: {why}")]
    WrongHandle {
        /// In what.
        why: Box<str>,
    },
    /// The copy is of another program's KV.
    #[error("the copy is of {copy}, not of {wanted}")]
    OtherProgram {
        /// Whose it is.
        copy: treadle_model::ProgramId,
        /// Whose was asked for.
        wanted: treadle_model::ProgramId,
    },
    /// The copy was made under another model, other weights or another layout.
    #[error("the copy's {field} is {copy:?}, the worker's is {worker:?}")]
    OtherTags {
        /// Which tag.
        field: &'static str,
        /// The copy's.
        copy: Box<str>,
        /// The worker's.
        worker: Box<str>,
    },
    /// The tokens are not the program's.
    #[error("the KV is of other tokens than the program's: {why}")]
    OtherPrefix {
        /// In what they differ.
        why: Box<str>,
    },
    /// The copy no longer exists.
    #[error("the copy {id} is gone: {why}")]
    Gone {
        /// Which.
        id: CopyId,
        /// Since when.
        why: Box<str>,
    },
    /// The copy's bytes are not those that were written.
    #[error("the copy {id} is damaged: {why}")]
    Damaged {
        /// Which.
        id: CopyId,
        /// How that shows.
        why: Box<str>,
    },
    /// The host tier has no room that could be made.
    #[error(
        "the host tier has no room for {needed_bytes} bytes: of {bytes_max} bytes, {held_bytes} \
         are in transfer; raise its bound or have fewer transfers at once"
    )]
    TierFull {
        /// What was to come in.
        needed_bytes: u64,
        /// What can't be evicted now.
        held_bytes: u64,
        /// The tier's bound.
        bytes_max: u64,
    },
    /// Too many transfers wait for this worker.
    #[error("{worker} has {waiting} transfers waiting already")]
    Busy {
        /// The worker's URL.
        worker: Box<str>,
        /// How many.
        waiting: usize,
    },
    /// The bound of this transfer's time was reached.
    #[error("{what} took longer than {} ms", after.as_millis())]
    Timeout {
        /// What.
        what: &'static str,
        /// The bound.
        after: Duration,
    },
    /// The engine does not answer.
    #[error("no answer from {url}: {why}")]
    Unreachable {
        /// The engine or node.
        url: Box<str>,
        /// The cause.
        why: Box<str>,
    },
    /// The engine refused.
    #[error("{url} answered {status}: {message}")]
    Refused {
        /// The engine or node.
        url: Box<str>,
        /// Its status.
        status: u16,
        /// Its message.
        message: Box<str>,
    },
    /// The engine answered with success, and took nothing, or not what it should have.
    #[error("{url} did not take the copy: {why}")]
    NotTaken {
        /// The engine.
        url: Box<str>,
        /// How that shows.
        why: Box<str>,
    },
    /// Another node's tier refused.
    #[error("the tier at {node} refused ({code}): {message}")]
    Node {
        /// The node.
        node: Box<str>,
        /// The code of its error.
        code: Box<str>,
        /// Its message.
        message: Box<str>,
    },
    /// A file or folder of the tier.
    #[error("{what} {path}: {source}")]
    File {
        /// What was being done.
        what: &'static str,
        /// With what.
        path: Box<str>,
        /// What went wrong.
        source: std::io::Error,
    },
    /// Something that has no other cause than treadle itself.
    #[error("{what}: {why}")]
    Internal {
        /// What.
        what: &'static str,
        /// The cause.
        why: Box<str>,
    },
}

impl TransferError {
    /// A name for logs, metrics and events.
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

    /// Turns an error of the file system into one of this crate.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string().into();
        move |source| Self::File { what, path, source }
    }
}

/// The code of another node's error, if this one has it too.
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
