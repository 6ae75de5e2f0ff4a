//! Locks beside a database file: the holder of `.leader` leads, and the holder of `.opening` may
//! create the file and change its schema.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::StoreError;

/// Pause between two attempts to take a lock.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A lock beside a database file; a database in memory needs none.
#[derive(Debug, Default)]
pub(super) struct Lock {
    path: Option<PathBuf>,
    held: Mutex<Option<File>>,
}

impl Lock {
    /// The lock of a database file for a purpose, which becomes its suffix.
    pub(super) fn beside(path: &Path, purpose: &str) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(purpose);
        Self {
            path: Some(name.into()),
            held: Mutex::default(),
        }
    }

    /// Whether its file exists.
    pub(super) fn exists(&self) -> bool {
        self.path.as_ref().is_none_or(|path| path.exists())
    }

    /// Takes the lock; `false` if another handle has it. The system releases it when the process
    /// ends.
    pub(super) fn take(&self) -> Result<bool, StoreError> {
        let Some(path) = &self.path else {
            return Ok(true);
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(true);
        }
        let failed = |source| StoreError::Lock {
            path: path.display().to_string(),
            source,
        };
        let writable = File::options().create(true).append(true).open(path);
        // A file of another user can be locked without write permission.
        let open = writable.or_else(|error| match error.kind() {
            ErrorKind::PermissionDenied => File::open(path),
            _ => Err(error),
        });
        let open = open.map_err(failed)?;
        match open.try_lock() {
            Ok(()) => {
                *held = Some(open);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Takes the lock when it is free; `false` after `timeout`.
    pub(super) async fn wait(&self, timeout: Duration) -> Result<bool, StoreError> {
        let began = Instant::now();
        while !self.take()? {
            if began.elapsed() >= timeout {
                return Ok(false);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(true)
    }

    /// Releases the lock.
    pub(super) fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
