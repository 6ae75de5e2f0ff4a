//! What is known of attempts after a crash: a folder with a small file for each attempt that began,
//! and one for each that ended and whose end nobody has acknowledged yet.
//!
//! `began` is on the disk before the action runs; its pids need not be, since no process outlives
//! the machine's crash. `ended` appears as a whole or not at all.

mod leftovers;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use treadle_core::actions::Outcome;
use treadle_model::ActionId;
use treadle_trust::private_folder;

pub(crate) use leftovers::end_leftovers;

/// What names of files of services begin with.
const SERVICE: &str = "service-";

/// One attempt of an action.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct AttemptId {
    /// The action.
    pub action: ActionId,
    /// Which attempt, from 1.
    pub attempt: u32,
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.action, self.attempt)
    }
}

/// What the folder shows of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// It never began: it may be started.
    NeverBegan,
    /// It began, and nobody knows how far it came.
    Unknown {
        /// Whether some of it still ran, and was ended.
        was_alive: bool,
    },
    /// It ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// The digest of its output, where it has any.
        output: Option<Box<str>>,
    },
}

/// What earlier daemons left.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recovery(pub(crate) BTreeMap<AttemptId, Found>);

impl Recovery {
    /// What is known of an attempt.
    pub fn of(&self, attempt: AttemptId) -> Found {
        self.0.get(&attempt).cloned().unwrap_or(Found::NeverBegan)
    }

    /// Every attempt that began.
    pub fn all(&self) -> impl Iterator<Item = (AttemptId, &Found)> {
        self.0.iter().map(|(id, found)| (*id, found))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Began {
    attempt: AttemptId,
    /// A variable in the environment of its processes.
    mark: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    attempt: AttemptId,
    #[serde(flatten)]
    outcome: Outcome,
    output: Option<Box<str>>,
}

/// The folder. It is one daemon's at a time.
#[derive(Debug)]
pub(crate) struct Markers {
    folder: PathBuf,
    /// Held for as long as this is.
    _lock: File,
}

impl Markers {
    /// Opens the folder, and makes it where there is none.
    ///
    /// # Errors
    /// The system's, or another daemon has it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        private_folder(folder)?;
        let lock = File::options()
            .create(true)
            .append(true)
            .open(folder.join("lock"))?;
        lock.try_lock().map_err(|_| {
            let told = format!(
                "{} is another daemon's; give this one its own",
                folder.display()
            );
            io::Error::other(told)
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    fn path(&self, attempt: AttemptId, what: &str) -> PathBuf {
        self.folder.join(format!("{attempt}.{what}"))
    }

    /// Where the supervisor writes which processes there are.
    pub(crate) fn pids(&self, attempt: AttemptId) -> PathBuf {
        self.path(attempt, "pids")
    }

    /// Puts on record that an attempt begins.
    pub(crate) fn began(&self, attempt: AttemptId, mark: &str) -> io::Result<()> {
        let began = Began {
            attempt,
            mark: mark.to_owned(),
        };
        let mut file = File::create_new(self.path(attempt, "began"))?;
        file.write_all(&serde_json::to_vec(&began)?)?;
        file.sync_all()?;
        self.sync()
    }

    /// Puts on record that and how it ended.
    pub(crate) fn ended(
        &self,
        attempt: AttemptId,
        outcome: Outcome,
        output: Option<Box<str>>,
    ) -> io::Result<()> {
        let ended = Ended {
            attempt,
            outcome,
            output,
        };
        let partial = self.path(attempt, "partial");
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(&ended)?)?;
        file.sync_all()?;
        fs::rename(&partial, self.path(attempt, "ended"))?;
        self.sync()
    }

    /// Forgets an attempt.
    pub(crate) fn erase(&self, attempt: AttemptId) -> io::Result<()> {
        // The end last: without it the rest would look like an attempt that still runs.
        for what in ["partial", "pids", "began", "ended"] {
            match fs::remove_file(self.path(attempt, what)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the supervisor of a service writes which processes there are; the path is the mark of
    /// them all.
    pub(crate) fn service_pids(&self, instance: &str) -> PathBuf {
        self.folder.join(format!("{SERVICE}{instance}.pids"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    /// Reads what earlier daemons left, and ends what still runs of it.
    pub(crate) fn recover(&self) -> io::Result<Recovery> {
        let mut found = BTreeMap::new();
        let mut began = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(|what| what.to_str()) {
                Some("ended") => {
                    let ended: Ended = read(&path)?;
                    let (outcome, output) = (ended.outcome, ended.output);
                    found.insert(ended.attempt, Found::Ended { outcome, output });
                }
                Some("began") => began.push(path),
                Some("pids") if is_service(&path) => {
                    end_leftovers(&path, &path.to_string_lossy());
                    fs::remove_file(&path)?;
                }
                _ => {}
            }
        }
        for path in began {
            let Ok(began) = read::<Began>(&path) else {
                // It is written before anything begins: what is half there did not.
                tracing::warn!(path = %path.display(), "a marker that was never complete goes");
                fs::remove_file(&path)?;
                continue;
            };
            let was_alive = end_leftovers(&self.pids(began.attempt), &began.mark);
            let unknown = Found::Unknown { was_alive };
            found.entry(began.attempt).or_insert(unknown);
        }
        Ok(Recovery(found))
    }
}

fn is_service(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(SERVICE))
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<T> {
    let told = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("{} can't be read: {error}", path.display()))
    };
    let bytes = fs::read(path).map_err(|error| told(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| told(&error))
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
        markers.began(id(1, 1), "m").unwrap();
        assert!(
            markers.began(id(1, 1), "m").is_err(),
            "no attempt begins twice"
        );
        markers.began(id(2, 1), "m").unwrap();
        let outcome = Outcome::Exited { code: 3 };
        markers
            .ended(id(2, 1), outcome.clone(), Some("d".into()))
            .unwrap();
        fs::write(root.path().join("x9-1.began"), "{\"att").unwrap();
        fs::write(root.path().join("x1-1.partial"), "{").unwrap();
        assert!(Markers::open(root.path()).is_err(), "one daemon at a time");
        drop(markers);
        let markers = Markers::open(root.path()).unwrap();
        let recovery = markers.recover().unwrap();
        assert_eq!(recovery.of(id(1, 1)), Found::Unknown { was_alive: false });
        let output = Some("d".into());
        assert_eq!(recovery.of(id(2, 1)), Found::Ended { outcome, output });
        assert_eq!(recovery.of(id(9, 1)), Found::NeverBegan);
        assert_eq!(recovery.all().count(), 2);
        markers.erase(id(1, 1)).unwrap();
        markers.erase(id(2, 1)).unwrap();
        assert_eq!(markers.recover().unwrap(), Recovery::default());
        assert_eq!(
            fs::read_dir(root.path()).unwrap().count(),
            1,
            "the lock alone"
        );
    }

    #[test]
    fn an_end_without_its_beginning_is_an_end() {
        let root = tempfile::tempdir().unwrap();
        let markers = Markers::open(root.path()).unwrap();
        markers.ended(id(1, 2), Outcome::TimedOut, None).unwrap();
        let (outcome, output) = (Outcome::TimedOut, None);
        let recovery = markers.recover().unwrap();
        assert_eq!(recovery.of(id(1, 2)), Found::Ended { outcome, output });
    }
}
