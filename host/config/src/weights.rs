//! `[weights]`: the store of weights.

use super::section::section;
use super::{Config, ConfigError, conflict};
use std::path::Path;

section! {
    /// Versions of weights that trainers publish and hosts of engines pull (docs/weights.md). Requests name a version, never a path in it.
    WeightsSection in "weights" {
        /// Folder of the store, which the trainers' machines, the daemon and all hosts of engines have under the same path, on a shared file system if they are several. Without it engines load only from folders that a request names.
        store: String = String::new(), "";
        /// Folder on each host, on a local disk, that versions are pulled into and engines load from; the same path on all hosts. It takes the space of two versions of each job.
        folder: String = String::new(), "";
    }
}

impl WeightsSection {
    /// Whether versions can be pulled from a store.
    pub fn has_store(&self) -> bool {
        !self.store.is_empty()
    }

    /// Checks that the folders are usable, and apart from each other.
    pub(super) fn check(&self, config: &Config) -> Result<(), ConfigError> {
        if self.store.is_empty() && self.folder.is_empty() {
            return Ok(());
        }
        let (store, folder) = (Path::new(&self.store), Path::new(&self.folder));
        for (key, path) in [("weights.store", store), ("weights.folder", folder)] {
            let is_plain = path.components().count() > 1 && path.is_absolute();
            if !is_plain || path.components().any(|part| part.as_os_str() == "..") {
                let problem = format!("is `{}`, no absolute path of a folder", path.display());
                let remedy = "give both folders, each by an absolute path without `..`";
                return Err(conflict(key, problem, remedy));
            }
        }
        if store.starts_with(folder) || folder.starts_with(store) {
            let problem = "is in weights.store, or the other way around".to_owned();
            return Err(conflict("weights.folder", problem, "keep them apart"));
        }
        let own = Path::new(&config.store.path);
        if [store, folder].iter().any(|path| own.starts_with(path)) {
            let problem = "contains the store of the daemon's state".to_owned();
            let remedy = "use a folder for weights only";
            return Err(conflict("weights.store", problem, remedy));
        }
        Ok(())
    }
}
