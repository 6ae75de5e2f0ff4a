//! Orphaned files in the engines' folder. An engine may write a file long after its transfer was
//! cancelled, and killed processes leave files; so the folder is scanned periodically.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::files::{self, SLOT_FILE};
use super::remove_file;
use crate::TransferError;

/// Most file names whose files an engine may still write; the oldest are then removed by age.
const GIVEN_UP_MAX: usize = 1_024;
/// Age after which an unchanged file is an orphan: longer than any transfer of any process with
/// this folder.
pub(super) const ORPHAN_AGE: Duration = Duration::from_mins(10);

/// The known files in the folder.
#[derive(Default)]
pub(super) struct Orphans {
    state: Mutex<OrphanState>,
}

#[derive(Default)]
struct OrphanState {
    /// Files of current transfers.
    live: BTreeSet<PathBuf>,
    /// Files whose transfers were cancelled before they appeared.
    given_up: VecDeque<PathBuf>,
}

impl Orphans {
    /// Registers a transfer's file; false if another transfer has the same name.
    pub(super) fn begin(&self, path: &Path) -> bool {
        self.state().live.insert(path.to_owned())
    }

    /// Unregisters a finished transfer's file.
    pub(super) fn end(&self, path: &Path) {
        self.state().live.remove(path);
    }

    /// Removes a file now, or as soon as it appears.
    pub(super) fn give_up(&self, path: PathBuf) {
        let is_gone = remove_file(&path);
        let mut state = self.state();
        state.live.remove(&path);
        if !is_gone {
            if state.given_up.len() == GIVEN_UP_MAX {
                state.given_up.pop_front();
            }
            state.given_up.push_back(path);
        }
    }

    /// Removes files of cancelled transfers that have appeared.
    pub(super) fn sweep_given_up(&self) {
        let given_up = std::mem::take(&mut self.state().given_up);
        let left: VecDeque<PathBuf> = given_up
            .into_iter()
            .filter(|path| !path.exists() || !remove_file(path))
            .collect();
        let mut state = self.state();
        state.given_up.extend(left);
        while state.given_up.len() > GIVEN_UP_MAX {
            state.given_up.pop_front();
        }
    }

    /// Removes files of cancelled transfers, and all files older than `age` that belong to no
    /// transfer of this process.
    pub(super) fn sweep(&self, folder: &Path, age: Duration) -> Result<(), TransferError> {
        self.sweep_given_up();
        for path in files::list(folder)? {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let is_ours = name.starts_with(SLOT_FILE);
            if is_ours && files::is_older(&path, age) && !self.state().live.contains(&path) {
                tracing::info!(path = %path.display(), "removing an orphaned slot file");
                remove_file(&path);
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, OrphanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_orphans_are_removed_and_only_after_their_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let orphans = Orphans::default();
        let [left, live, others] = ["treadle-1", "treadle-2", "mine"].map(path);
        for file in [&left, &live, &others] {
            std::fs::write(file, "x").unwrap();
        }
        assert!(orphans.begin(&live));
        assert!(!orphans.begin(&live), "there is one of this name");
        orphans.sweep(folder.path(), ORPHAN_AGE).unwrap();
        assert!(left.exists(), "it may be another process's");
        orphans.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!left.exists() && live.exists() && others.exists());
        orphans.end(&live);
        orphans.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!live.exists());
    }

    #[test]
    fn late_files_are_removed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |at: usize| folder.path().join(format!("{SLOT_FILE}{at}"));
        let orphans = Orphans::default();
        (0..GIVEN_UP_MAX + 10).for_each(|at| orphans.give_up(path(at)));
        assert_eq!(orphans.state().given_up.len(), GIVEN_UP_MAX);
        for late in [0, GIVEN_UP_MAX] {
            std::fs::write(path(late), "x").unwrap();
        }
        orphans.sweep(folder.path(), ORPHAN_AGE).unwrap();
        assert!(!path(GIVEN_UP_MAX).exists());
        // The first name was dropped, so its file is removed by age.
        assert!(path(0).exists());
        orphans.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!path(0).exists());
    }
}
