//! Why something can't be done with a weight store.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why something can't be done with a weight store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The disk, or another part of the machine.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// A folder that is no checkpoint.
    #[error("{} is no whole checkpoint: {why}", path.display())]
    NotWhole {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something in the stream is not what was published.
    #[error("version {version} is damaged: {why}; publish a later version as a whole")]
    Damaged {
        /// The version.
        version: u64,
        /// What is wrong.
        why: String,
    },
    /// A version that is not there, or that needs one that is not.
    #[error("version {0} is not in the store; publish it, or name one that `history` lists")]
    Missing(u64),
    /// The disk has no room.
    #[error(
        "{} needs {needed} bytes more, and its disk has {free} free; free some, or use a larger disk",
        folder.display()
    )]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that the disk has.
        free: u64,
    },
    /// A number that is too low.
    #[error(
        "version {version} can't be published after {newest}: numbers only rise, and nothing is \
         replaced; after going back to a checkpoint publish in the new lineage"
    )]
    Older {
        /// The version.
        version: u64,
        /// The newest one.
        newest: u64,
    },
    /// The version is there with other weights.
    #[error("version {0} is there already, with other weights; publish these as a later version")]
    Other(u64),
    /// Somebody else is at work.
    #[error("{0} is under way in another process; wait until it has ended")]
    Busy(&'static str),
}

/// The result of an operation on a weight store.
pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// Names the file in an error of the system.
pub(crate) trait At<T> {
    /// Names the file.
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|error| StoreError::Io {
            path: path.to_owned(),
            error,
        })
    }
}

/// A checkpoint that can't be used.
pub(crate) fn not_whole(path: &Path, why: impl Into<String>) -> StoreError {
    StoreError::NotWhole {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// A version that is not what was published.
pub(crate) fn damaged(version: u64, why: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        version,
        why: why.into(),
    }
}
