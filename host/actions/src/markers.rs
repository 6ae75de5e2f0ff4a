//! Markers of attempts, for recovery after a crash: a folder with a small file for each attempt
//! that began, and one for each end that is not acknowledged yet.
//!
//! Files are not synced to disk, which would take longer than many actions. They survive the
//! daemon. If the machine crashes, a missing file proves nothing; the folder records the machine's
//! boot id to detect that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use treadle_core::actions::Outcome;
use treadle_model::ActionId;
use treadle_trust::private_folder;

use crate::process::{Identity, Leftover, boot_id, end_leftovers};

/// Prefix of the files of services.
const SERVICE: &str = "service-";
/// The file that identifies the folder's owner.
const OWNER: &str = "owner.json";

/// One attempt of an action.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct AttemptId {
    pub(crate) action: ActionId,
    pub(crate) attempt: u32,
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.action, self.attempt)
    }
}

impl AttemptId {
    fn read(text: &str) -> Option<Self> {
        let (action, attempt) = text.strip_prefix('x')?.split_once('-')?;
        let action = ActionId(action.parse().ok()?);
        let attempt = attempt.parse().ok()?;
        Some(Self { action, attempt })
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    /// Digest of its output, if it has any.
    pub(crate) output: Option<Box<str>>,
}

/// The daemon that last used the folder.
#[derive(Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Owner {
    boot: String,
    epoch: u64,
}

/// The markers of earlier daemons.
#[derive(Debug, Default)]
pub(crate) struct EarlierAttempts {
    /// Attempts that began, with their ends if known.
    pub(crate) attempts: BTreeMap<AttemptId, Option<End>>,
    /// Whether attempts that are missing never began.
    pub(crate) is_all: bool,
}

/// The folder of markers, used by one daemon at a time.
#[derive(Debug)]
pub(crate) struct Markers {
    folder: PathBuf,
    boot: String,
    /// The lock on the folder, until it is released.
    lock: Mutex<Option<File>>,
}

impl Markers {
    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// The system's, or another daemon uses it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        private_folder(folder)?;
        let mut options = File::options();
        let lock = options
            .create(true)
            .append(true)
            .open(folder.join("lock"))?;
        lock.try_lock().map_err(|_| {
            io::Error::other("another daemon uses it; give this one a separate folder")
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            boot: boot_id(),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Records durably that the folder has the attempts of this epoch from now on.
    pub(crate) fn begin(&self, epoch: u64) -> io::Result<()> {
        let boot = self.boot.clone();
        let partial = self.folder.join("owner.partial");
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(&Owner { boot, epoch })?)?;
        file.sync_all()?;
        fs::rename(&partial, self.folder.join(OWNER))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Releases the folder for other daemons.
    pub(crate) fn release(&self) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        *lock = None;
    }

    fn path(&self, attempt: AttemptId, what: &str) -> PathBuf {
        self.folder.join(format!("{attempt}.{what}"))
    }

    /// Records the start of an attempt, and how to find its remaining processes.
    ///
    /// # Errors
    /// The system's, or the attempt began before.
    pub(crate) fn began(&self, attempt: AttemptId, left: &Leftover) -> io::Result<()> {
        let mut file = File::create_new(self.path(attempt, "began"))?;
        file.write_all(&serde_json::to_vec(left)?)
    }

    /// Records the end of an attempt. The file is written atomically.
    pub(crate) fn ended(&self, attempt: AttemptId, end: &End) -> io::Result<()> {
        let partial = self.path(attempt, "partial");
        fs::write(&partial, serde_json::to_vec(end)?)?;
        fs::rename(&partial, self.path(attempt, "ended"))
    }

    /// Removes the markers of an attempt.
    pub(crate) fn erase(&self, attempt: AttemptId) -> io::Result<()> {
        // The end marker last: without it, the attempt would look unfinished.
        for what in ["partial", "began", "ended"] {
            match fs::remove_file(self.path(attempt, what)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Records how to find a service's remaining processes.
    pub(crate) fn service_began(&self, instance: &str, left: &Leftover) -> io::Result<()> {
        let path = self.folder.join(format!("{SERVICE}{instance}.began"));
        fs::write(path, serde_json::to_vec(left)?)
    }

    /// The data to find the processes of an attempt that begins now.
    pub(crate) fn leftover(
        &self,
        mark: &str,
        supervisor: Option<Identity>,
        cgroup: Option<PathBuf>,
    ) -> Leftover {
        Leftover {
            mark: mark.to_owned(),
            supervisor,
            cgroup,
            boot: self.boot.clone(),
        }
    }

    /// Reads the markers of earlier daemons, and ends their remaining processes. The list of
    /// attempts is complete only if this folder was used under the epoch before `epoch` and the
    /// machine has not been restarted.
    pub(crate) fn recover(&self, epoch: u64) -> io::Result<EarlierAttempts> {
        let mut found = EarlierAttempts {
            is_all: self.is_all(epoch),
            ..EarlierAttempts::default()
        };
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let what = path.extension().and_then(|what| what.to_str());
            let (Some(stem), Some(what)) = (stem, what) else {
                continue;
            };
            let attempt = AttemptId::read(stem);
            match (attempt, what) {
                // After a crash of the machine, the file may be empty.
                (Some(attempt), "ended") => {
                    let end = read(&path);
                    found.attempts.insert(attempt, end);
                }
                (Some(attempt), "began") => {
                    found.attempts.entry(attempt).or_insert(None);
                    left.extend(read::<Leftover>(&path));
                }
                (None, "began") if stem.starts_with(SERVICE) => {
                    left.extend(read::<Leftover>(&path));
                    fs::remove_file(&path)?;
                }
                _ => {}
            }
        }
        left.retain(|left| left.boot == self.boot);
        end_leftovers(&left);
        Ok(found)
    }

    fn is_all(&self, epoch: u64) -> bool {
        let owner = read::<Owner>(&self.folder.join(OWNER));
        owner.is_some_and(|owner| {
            let since = epoch.checked_sub(owner.epoch);
            owner.boot == self.boot && since.is_some_and(|since| since <= 1)
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    let read = fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    match read {
        Ok(read) => Some(read),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "could not read a marker of an action");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(action: u64, attempt: u32) -> AttemptId {
        let action = ActionId(action);
        AttemptId { action, attempt }
    }

    #[test]
    fn each_attempt_is_found_as_far_as_it_came() {
        let root = tempfile::tempdir().unwrap();
        let markers = Markers::open(root.path()).unwrap();
        let left = markers.leftover("m", None, None);
        markers.began(id(1, 1), &left).unwrap();
        let again = markers.began(id(1, 1), &left);
        assert!(again.is_err(), "no attempt begins twice");
        markers.began(id(2, 1), &left).unwrap();
        let end = End {
            outcome: Outcome::Exited { code: 3 },
            output: Some("d".into()),
        };
        markers.ended(id(2, 1), &end).unwrap();
        markers.ended(id(3, 2), &end).unwrap();
        fs::write(root.path().join("x9-1.began"), "{\"att").unwrap();
        fs::write(root.path().join("x8-1.ended"), "").unwrap();
        fs::write(root.path().join("x1-1.partial"), "{").unwrap();
        assert!(Markers::open(root.path()).is_err(), "one daemon at a time");
        drop(markers);
        let markers = Markers::open(root.path()).unwrap();
        let found = markers.recover(1).unwrap();
        let wanted = [
            (id(1, 1), None),
            (id(2, 1), Some(end.clone())),
            (id(3, 2), Some(end)),
            (id(8, 1), None),
            (id(9, 1), None),
        ];
        assert_eq!(found.attempts, BTreeMap::from(wanted));
        for attempt in found.attempts.into_keys() {
            markers.erase(attempt).unwrap();
        }
        assert_eq!(markers.recover(1).unwrap().attempts, BTreeMap::new());
        let files = fs::read_dir(root.path()).unwrap().count();
        assert_eq!(files, 1, "the lock alone");
    }

    #[test]
    fn what_is_absent_never_began_only_under_the_epoch_before() {
        let root = tempfile::tempdir().unwrap();
        let mut markers = Markers::open(root.path()).unwrap();
        assert!(!markers.recover(1).unwrap().is_all, "a folder that is new");
        markers.begin(4).unwrap();
        for (epoch, is_all) in [(3, false), (4, true), (5, true), (6, false)] {
            assert_eq!(markers.recover(epoch).unwrap().is_all, is_all, "{epoch}");
        }
        markers.boot = "another run of the machine".to_owned();
        assert!(!markers.recover(5).unwrap().is_all);
    }
}
