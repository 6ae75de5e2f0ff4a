//! Files in the engines' folder that nobody wants any more. An engine may write one long after it
//! was given up, and a process that was killed has left some; so they are looked for again and
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
/// Time without a change after which a file there is nobody's: longer than any transfer of another
/// process that has the folder, too.
pub(super) const STRAY_AGE: Duration = Duration::from_mins(10);

/// What is known of the files there.
#[derive(Default)]
pub(super) struct Strays {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Files of transfers under way.
    live: BTreeSet<PathBuf>,
    /// Files that were given up before they were there.
    given_up: VecDeque<PathBuf>,
}

impl Strays {
    /// A transfer begins; false if one has this name already.
    pub(super) fn begin(&self, path: &Path) -> bool {
        self.books().live.insert(path.to_owned())
    }

    /// It is over.
    pub(super) fn end(&self, path: &Path) {
        self.books().live.remove(path);
    }

    /// Removes a file now, or when it has appeared.
    pub(super) fn give_up(&self, path: PathBuf) {
        let is_gone = remove_file(&path);
        let mut books = self.books();
        books.live.remove(&path);
        if !is_gone {
            if books.given_up.len() == GIVEN_UP_MAX {
                books.given_up.pop_front();
            }
            books.given_up.push_back(path);
        }
    }

    /// Removes those that have appeared since they were given up.
    pub(super) fn sweep_given_up(&self) {
        let given_up = std::mem::take(&mut self.books().given_up);
        let left: VecDeque<PathBuf> = given_up
            .into_iter()
            .filter(|path| !path.exists() || !remove_file(path))
            .collect();
        let mut books = self.books();
        books.given_up.extend(left);
        while books.given_up.len() > GIVEN_UP_MAX {
            books.given_up.pop_front();
        }
    }

    /// The same, and all that are so old and of no transfer of this process.
    pub(super) fn sweep(&self, folder: &Path, age: Duration) -> Result<(), TransferError> {
        self.sweep_given_up();
        for path in files::list(folder)? {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let is_ours = name.starts_with(SLOT_FILE);
            if is_ours && files::is_older(&path, age) && !self.books().live.contains(&path) {
                tracing::info!(path = %path.display(), "a slot file that nobody wants is removed");
                remove_file(&path);
            }
        }
        Ok(())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wants_goes_with_time_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let strays = Strays::default();
        let [left, live, others] = ["treadle-1", "treadle-2", "mine"].map(path);
        for file in [&left, &live, &others] {
            std::fs::write(file, "x").unwrap();
        }
        assert!(strays.begin(&live));
        assert!(!strays.begin(&live), "there is one of this name");
        strays.sweep(folder.path(), STRAY_AGE).unwrap();
        assert!(left.exists(), "it may be another process's");
        strays.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!left.exists() && live.exists() && others.exists());
        strays.end(&live);
        strays.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!live.exists());
    }

    #[test]
    fn what_appears_late_goes_at_once_however_many_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = |at: usize| folder.path().join(format!("{SLOT_FILE}{at}"));
        let strays = Strays::default();
        (0..GIVEN_UP_MAX + 10).for_each(|at| strays.give_up(path(at)));
        assert_eq!(strays.books().given_up.len(), GIVEN_UP_MAX);
        for late in [0, GIVEN_UP_MAX] {
            std::fs::write(path(late), "x").unwrap();
        }
        strays.sweep(folder.path(), STRAY_AGE).unwrap();
        assert!(!path(GIVEN_UP_MAX).exists());
        // The first was forgotten, and goes by its age.
        assert!(path(0).exists());
        strays.sweep(folder.path(), Duration::ZERO).unwrap();
        assert!(!path(0).exists());
    }
}
