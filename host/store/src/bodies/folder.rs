//! Bodies as files in a folder.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::{blocking, failed};
use crate::StoreError;
use treadle_trust::{private_file, private_folder};

/// A folder with one file per body.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder if it is absent, with access for its owner only.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let shown = path.display().to_string();
        private_folder(path).map_err(|error| failed(&shown, error))?;
        Ok(Self(path.to_owned()))
    }

    /// Writes a file atomically.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let path = self.0.join(name);
        blocking(move || write(&path, &bytes).map_err(|error| told(&path, error))).await
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.0.join(name);
        blocking(move || match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(told(&path, error)),
        })
        .await
    }

    /// Removes a file if it exists.
    pub(super) async fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.0.join(name);
        blocking(move || match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(told(&path, error)),
            _ => Ok(()),
        })
        .await
    }
}

fn told(path: &Path, error: std::io::Error) -> StoreError {
    failed(&path.display().to_string(), error)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), std::io::Error> {
    let partial = path.with_extension("partial");
    private_file(&partial)?;
    let mut file = std::fs::File::create(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)?;
    // The new name is durable only once the folder is synced too.
    path.parent().map_or(Ok(()), |folder| {
        std::fs::File::open(folder).and_then(|folder| folder.sync_all())
    })
}
