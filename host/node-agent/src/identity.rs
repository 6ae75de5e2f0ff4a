//! The identity of a node, stored in its folder.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use treadle_runs::nodes::MARK_CHARS;
use treadle_sandbox::random_name;

/// Length of the id of an agent's run.
const RUN_CHARS: usize = 16;

/// The identity of a node.
pub(super) struct Identity {
    file: PathBuf,
    run: String,
    mark: String,
    cordoned: Mutex<bool>,
}

/// The stored identity.
#[derive(Serialize, Deserialize)]
struct StoredIdentity {
    mark: String,
    #[serde(default)]
    cordoned: bool,
}

impl Identity {
    /// Reads the identity, or creates one.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        treadle_trust::private_folder(folder)?;
        let file = folder.join("node.json");
        let stored = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => StoredIdentity {
                mark: random_name(MARK_CHARS)?,
                cordoned: false,
            },
            Err(error) => return Err(error),
        };
        let identity = Self {
            file,
            run: random_name(RUN_CHARS)?,
            cordoned: Mutex::new(stored.cordoned),
            mark: stored.mark,
        };
        identity.keep(stored.cordoned)?;
        Ok(identity)
    }

    fn keep(&self, cordoned: bool) -> io::Result<()> {
        let partial = self.file.with_extension("partial");
        let stored = StoredIdentity {
            mark: self.mark.clone(),
            cordoned,
        };
        std::fs::write(&partial, serde_json::to_vec(&stored)?)?;
        std::fs::File::open(&partial)?.sync_all()?;
        std::fs::rename(&partial, &self.file)
    }

    /// Its mark, the suffix of its sandboxes' names.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// The id of this run of the agent.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Whether it is cordoned.
    pub(super) fn is_cordoned(&self) -> bool {
        *self.cordoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cordons the node or takes it back, also after a restart.
    pub(super) fn cordon(&self, cordoned: bool) {
        *self.cordoned.lock().unwrap_or_else(PoisonError::into_inner) = cordoned;
        if let Err(error) = self.keep(cordoned) {
            tracing::error!(%error, "the cordon can't be stored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_the_same_after_a_restart() {
        let root = tempfile::tempdir().expect("a folder");
        let first = Identity::open(root.path()).expect("it is made");
        first.cordon(true);
        let again = Identity::open(root.path()).expect("it is read");
        assert_eq!((again.mark(), again.is_cordoned()), (first.mark(), true));
        assert_ne!(again.run(), first.run());
        std::fs::write(root.path().join("node.json"), "{").expect("it is written");
        assert!(Identity::open(root.path()).is_err(), "nothing is made up");
    }
}
