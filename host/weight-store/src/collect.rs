//! Deletes versions that nobody needs.

use crate::error::{Result, StoreError};
use crate::files::{Lock, remove_folder, rename, sync_folder};
use crate::stream::Stream;
use crate::version::Version;
use std::collections::BTreeSet;

/// What was deleted, and what was not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Collected {
    /// Versions that were deleted.
    pub deleted: Vec<u64>,
    /// Versions that are needed: by name, by one that is, or because a host reads them.
    pub kept: Vec<u64>,
}

impl Stream {
    /// Deletes all versions but those named, the newest one, those that a host reads now, and what
    /// these build on.
    ///
    /// # Errors
    /// Somebody else publishes or collects, or the disk failed.
    pub fn collect(&self, keep: &BTreeSet<u64>) -> Result<Collected> {
        if !self.folder().exists() {
            return Ok(Collected::default());
        }
        let _lock = Lock::take(&self.folder().join(".locks/publish"), "a publication")?;
        let versions = self.versions()?;
        let mut locks = Vec::new();
        let mut used: BTreeSet<u64> = keep.intersection(&versions).copied().collect();
        used.extend(versions.last());
        for version in &versions {
            match Lock::take(&self.lock_of(*version), "a pull") {
                Ok(lock) => locks.push(lock),
                Err(StoreError::Busy(_)) => {
                    used.insert(*version);
                }
                Err(other) => return Err(other),
            }
        }
        let mut needed = BTreeSet::new();
        for version in used {
            self.need(version, &mut needed);
        }
        let unneeded: Vec<u64> = versions.difference(&needed).copied().collect();
        // The newest one first: what is left after a crash has all that it builds on.
        for version in unneeded.iter().rev() {
            let old = self.folder().join(".old");
            remove_folder(&old)?;
            rename(&self.folder_of(*version), &old)?;
            remove_folder(&old)?;
        }
        sync_folder(self.folder())?;
        Ok(Collected {
            deleted: unneeded,
            kept: needed.into_iter().collect(),
        })
    }

    /// Adds a version and all that it builds on. One that can't be read needs at least itself.
    fn need(&self, version: u64, needed: &mut BTreeSet<u64>) {
        let mut at = version;
        while needed.insert(at) {
            match self.open_version(at) {
                Ok(Version::Delta(delta)) => at = delta.base,
                Ok(Version::Full(_)) | Err(_) => return,
            }
        }
    }
}
