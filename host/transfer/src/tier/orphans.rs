//! Orphaned files in the engines' folder. An engine may write one long after its transfer was
//! cancelled, and a process that was killed has left some; so the folder is scanned again and
//! again.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::files::{self, SLOT_FILE};
use super::remove_file;
use crate::TransferError;

/// Most names of files that may yet appear, because an engine may yet write them; the oldest are
/// left to their age.
const GIVEN_UP_MAX: usize = 1_024;
/// Time without a change after which a file there is an orphan: longer than any transfer of another
/// process that has the folder, too.
pub(super) const ORPHAN_AGE: Duration = Duration::from_mins(10);

/// What is known of the files there.
#[derive(Default)]
pub(super) struct Orphans {
    state: Mutex<OrphanState>,
}

#[derive(Default)]
struct OrphanState {
    /// Files of transfers under way.
    live: BTreeSet<PathBuf>,
    /// Files whose transfers were cancelled before they were there.
    given_up: VecDeque<PathBuf>,
}

impl Orphans {
    /// A transfer begins; false if one has this name already.
    pub(super) fn begin(&self, path: &Path) -> bool {
        self.state().live.insert(path.to_owned())
    }

    /// It is over.
    pub(super) fn end(&self, path: &Path) {
        self.state().live.remove(path);
    }

    /// Removes a file now, or when it has appeared.
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

    /// Removes those that have appeared since they were given up.
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

    /// The same, and all that are so old and of no transfer of this process.
    pub(super) fn sweep(&self, folder: &Path, age: Duration) -> Result<(), TransferError> {
        self.sweep_given_up();
        for path in files::list(folder)? {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let is_ours = name.starts_with(SLOT_FILE);
            if is_ours && files::is_older(&path, age) && !self.state().live.contains(&path) {
                tracing::info!(path = %path.display(), "an orphaned slot file is removed");
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
    fn what_appears_late_goes_at_once_however_many_there_are() {
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
        // The first was forgotten, and is removed by its age.
        assert!(path(0).exists());
        orphans.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!path(0).exists());
    }
}
