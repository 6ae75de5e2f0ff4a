//! Who leads on a file: whoever holds the lock of a file beside it.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::StoreError;

/// The lock beside a database file; a database in memory has none and needs none.
#[derive(Debug, Default)]
pub(super) struct Lock {
    path: Option<PathBuf>,
    held: Mutex<Option<File>>,
}

impl Lock {
    /// The lock of a database file.
    pub(super) fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".leader");
        Self {
            path: Some(name.into()),
            held: Mutex::default(),
        }
    }

    /// Takes it; `false` if another handle has it. The system lets go when the process ends.
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
        let open = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(failed)?;
        match open.try_lock() {
            Ok(()) => {
                *held = Some(open);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Lets go.
    pub(super) fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
