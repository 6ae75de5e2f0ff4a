//! Compiled policies on disk, so that a restart compiles nothing twice.
//!
//! A file is named by the SHA-256 of its component and by the settings of the engine that it was
//! compiled for. It is written under another name and renamed, checked before it is loaded, and
//! evicted in order of last use if room is needed. The folder must belong to this user, because its
//! files are executed.

mod artifact;
pub(crate) mod trusted;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use thiserror::Error;

pub(crate) use artifact::{Artifact, ArtifactKey};

const ENDING: &str = "cwasm";
/// Ending of a file that is being written.
const UNFINISHED: &str = "part";
/// Age at which an unfinished file must belong to a process that is gone.
const UNFINISHED_AGE_MAX: Duration = Duration::from_hours(1);

/// The folder for compiled policies cannot be used.
#[derive(Debug, Error)]
pub enum ArtifactStoreError {
    /// It could not be created, read or made private.
    #[error("artifact folder {folder}: {source}; give a folder that the daemon may write")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// It belongs to another user, who could put code there.
    #[error("artifact folder {0} belongs to another user; give a folder of the daemon's own")]
    Foreign(PathBuf),
    /// The limit is too small for any policy.
    #[error("artifact_bytes_max is {found}; give at least {min}")]
    Bound {
        /// The limit.
        found: u64,
        /// The minimum.
        min: u64,
    },
}

/// Compiled policies in a folder, limited in bytes.
#[derive(Debug)]
pub struct ArtifactStore {
    folder: PathBuf,
    bytes_max: u64,
    /// Held while files are counted, removed and written.
    changing: Mutex<()>,
    /// Distinguishes the unfinished files of one process.
    written: AtomicU64,
}

impl ArtifactStore {
    /// The smallest accepted limit, in bytes.
    pub const BYTES_MIN: u64 = 1 << 20;

    /// Opens the folder, creating it if it is missing and making it private, for at most
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// The folder cannot be made private, belongs to another user, or the limit is below
    /// [`BYTES_MIN`](Self::BYTES_MIN).
    pub fn open(folder: &Path, bytes_max: u64) -> Result<Self, ArtifactStoreError> {
        if bytes_max < Self::BYTES_MIN {
            return Err(ArtifactStoreError::Bound {
                found: bytes_max,
                min: Self::BYTES_MIN,
            });
        }
        let failed = |source| ArtifactStoreError::Folder {
            folder: folder.to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(failed)?;
        let owner = fs::metadata(folder).map_err(failed)?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(ArtifactStoreError::Foreign(folder.to_owned()));
        }
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(failed)?;
        let store = Self {
            folder: folder.to_owned(),
            bytes_max,
            changing: Mutex::new(()),
            written: AtomicU64::new(0),
        };
        store.make_room(0).map_err(failed)?;
        Ok(store)
    }

    /// Bytes of all compiled policies.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn bytes(&self) -> std::io::Result<u64> {
        Ok(self.files()?.iter().map(|file| file.bytes).sum())
    }

    /// A compiled policy, if there is an undamaged one.
    pub(crate) fn get(&self, key: &ArtifactKey) -> Option<Artifact> {
        let path = self.path(key);
        let bytes = match self.read(&path) {
            Ok(bytes) => bytes?,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "reading a compiled policy failed");
                return None;
            }
        };
        match Artifact::parse(bytes, key) {
            Ok(artifact) => Some(artifact),
            Err(damage) => {
                tracing::warn!(path = %path.display(), %damage, "a compiled policy is damaged; compiling it again");
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Stores a compiled policy. The store is only a cache: if it cannot be written, that is logged
    /// and the policy runs all the same.
    pub(crate) fn put(&self, key: &ArtifactKey, artifact: &Artifact) {
        if artifact.sealed().len() as u64 > self.bytes_max {
            return;
        }
        let path = self.path(key);
        if let Err(error) = self.write(&path, artifact.sealed()) {
            tracing::warn!(path = %path.display(), %error, "storing a compiled policy failed");
        }
    }

    /// Reads a file; `None` if it is too large to be one of this store.
    fn read(&self, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(self.bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > self.bytes_max {
            return Ok(None);
        }
        // The modification time records the last use; if it can't be set, the file is evicted
        // earlier.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(bytes))
    }

    fn write(&self, path: &Path, sealed: &[u8]) -> std::io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let unfinished =
            path.with_extension(format!("{}-{number}.{UNFINISHED}", std::process::id()));
        let written = self
            .make_room(sealed.len() as u64)
            .and_then(|()| File::create_new(&unfinished))
            .and_then(|mut file| file.write_all(sealed))
            .and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Evicts the least recently used files until `room` bytes are free, and old unfinished ones.
    fn make_room(&self, room: u64) -> std::io::Result<()> {
        let mut files = self.files()?;
        files.sort_by(|a, b| (b.used, &b.path).cmp(&(a.used, &a.path)));
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        while bytes.saturating_add(room) > self.bytes_max
            && let Some(oldest) = files.pop()
        {
            remove(&oldest.path)?;
            bytes -= oldest.bytes;
        }
        Ok(())
    }

    /// The finished files. Removes old unfinished ones.
    fn files(&self) -> std::io::Result<Vec<StoredFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            let Some(ending @ (ENDING | UNFINISHED)) = ending else {
                continue;
            };
            // Another process may have removed it.
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            let used = metadata.modified()?;
            if ending == ENDING {
                let bytes = metadata.len();
                files.push(StoredFile { path, used, bytes });
            } else if used.elapsed().is_ok_and(|age| age > UNFINISHED_AGE_MAX) {
                remove(&path)?;
            }
        }
        Ok(files)
    }

    fn path(&self, key: &ArtifactKey) -> PathBuf {
        self.folder.join(format!("{}.{ENDING}", key.file_stem()))
    }
}

/// A file of the store.
struct StoredFile {
    path: PathBuf,
    used: SystemTime,
    bytes: u64,
}

/// Removes a file that may be gone already.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
