//! Watching folders of sandboxes: they are scanned repeatedly, and differences are reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use treadle_sandbox::{Entry, FileKind, Sandbox, SandboxError, State};
use treadle_wire::{ErrorBody, ErrorCode};

use super::refused;

/// Most files below a watched folder.
const FILES_MAX: usize = 10_000;
/// Most levels of folders that are scanned.
const DEPTH_MAX: u32 = 64;
/// Most polled watches of a sandbox.
const WATCHES_MAX: usize = 64;
/// How long a watch remains without being polled.
const IDLE_MAX: Duration = Duration::from_hours(1);

/// Polled watches, by name.
#[derive(Default)]
pub struct Watches {
    all: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    next: u64,
    by_name: BTreeMap<String, PolledWatch>,
}

struct PolledWatch {
    sandbox: Arc<Sandbox>,
    watch: Arc<tokio::sync::Mutex<Watch>>,
    asked: Instant,
}

/// A watched folder.
pub struct Watch {
    sandbox: Arc<Sandbox>,
    path: String,
    depth: u32,
    seen: BTreeMap<String, Entry>,
}

/// A change of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// It is new.
    Made,
    /// It has other bytes.
    Written,
    /// It is gone.
    Gone,
    /// It has other permissions.
    Permitted,
}

impl Watch {
    /// Starts watching a folder.
    pub async fn begin(
        sandbox: &Arc<Sandbox>,
        path: &str,
        is_deep: bool,
    ) -> Result<Self, ErrorBody> {
        let mut watch = Self {
            sandbox: sandbox.clone(),
            path: path.to_owned(),
            depth: if is_deep { DEPTH_MAX } else { 1 },
            seen: BTreeMap::new(),
        };
        watch.seen = watch.files().await?;
        Ok(watch)
    }

    async fn files(&self) -> Result<BTreeMap<String, Entry>, ErrorBody> {
        let files = self.sandbox.list(&self.path, self.depth).await;
        let files = match files {
            Ok(files) => files,
            // The folder itself may have been removed.
            Err(SandboxError::File { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound && !self.seen.is_empty() =>
            {
                Vec::new()
            }
            Err(error) => return Err(refused(&error)),
        };
        if files.len() > FILES_MAX {
            let message = format!(
                "{} has more than {FILES_MAX} files, the limit of a watch; watch a subfolder",
                self.path
            );
            return Err(ErrorBody::new(ErrorCode::Overloaded, message));
        }
        let by_path = files.into_iter().map(|file| (file.path.clone(), file));
        Ok(by_path.collect())
    }

    /// Changes since the last scan, by path relative to the folder.
    pub async fn look(&mut self) -> Result<Vec<(String, Change)>, ErrorBody> {
        let now = self.files().await?;
        let changed = changes(&self.seen, &now);
        self.seen = now;
        let start = self.path.trim_end_matches('/').len() + 1;
        let inside = |path: String| path.get(start..).unwrap_or(&path).to_owned();
        let changed = changed.into_iter();
        Ok(changed
            .map(|(path, change)| (inside(path), change))
            .collect())
    }

    /// Whether the sandbox has ended, so that nothing is left to watch.
    pub fn is_over(&self) -> bool {
        let state = self.sandbox.status().state;
        matches!(state, State::Stopped | State::Failed(_) | State::Removed)
    }
}

fn changes(
    before: &BTreeMap<String, Entry>,
    now: &BTreeMap<String, Entry>,
) -> Vec<(String, Change)> {
    let mut found = Vec::new();
    for path in before.keys().filter(|path| !now.contains_key(*path)) {
        found.push((path.clone(), Change::Gone));
    }
    for (path, file) in now {
        let Some(old) = before.get(path) else {
            found.push((path.clone(), Change::Made));
            if file.kind == FileKind::File && file.size > 0 {
                found.push((path.clone(), Change::Written));
            }
            continue;
        };
        let is_file = file.kind == FileKind::File;
        if is_file && (old.size, old.modified) != (file.size, file.modified) {
            found.push((path.clone(), Change::Written));
        }
        if (old.mode, old.owner) != (file.mode, file.owner) {
            found.push((path.clone(), Change::Permitted));
        }
    }
    found
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a watch for polling, and returns its name.
    pub fn keep(&self, watch: Watch) -> Result<String, ErrorBody> {
        let mut known = self.lock();
        known.by_name.retain(|_, kept| {
            kept.asked.elapsed() < IDLE_MAX && kept.sandbox.status().state != State::Removed
        });
        let sandbox = watch.sandbox.clone();
        let own = known.by_name.values();
        if own.filter(|kept| kept.sandbox.id() == sandbox.id()).count() >= WATCHES_MAX {
            let message =
                format!("watch limit of the sandbox reached ({WATCHES_MAX}); remove a watch first");
            return Err(ErrorBody::new(ErrorCode::Overloaded, message));
        }
        known.next += 1;
        let name = format!("w{}", known.next);
        let kept = PolledWatch {
            sandbox,
            watch: Arc::new(tokio::sync::Mutex::new(watch)),
            asked: Instant::now(),
        };
        known.by_name.insert(name.clone(), kept);
        Ok(name)
    }

    /// The watch of a sandbox with this name.
    pub fn get(&self, sandbox: &str, name: &str) -> Option<Arc<tokio::sync::Mutex<Watch>>> {
        let mut known = self.lock();
        let kept = known.by_name.get_mut(name);
        let kept = kept.filter(|kept| kept.sandbox.id() == sandbox)?;
        kept.asked = Instant::now();
        Some(kept.watch.clone())
    }

    /// Ends a watch. Returns whether it existed.
    pub fn remove(&self, sandbox: &str, name: &str) -> bool {
        let is_there = self.get(sandbox, name).is_some();
        is_there && self.lock().by_name.remove(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_sandbox::UserIds;

    fn entry(path: &str, kind: FileKind, size: u64, mode: u32) -> (String, Entry) {
        let entry = Entry {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            path: path.to_owned(),
            kind,
            size,
            mode,
            owner: UserIds::ROOT,
            modified: (0, 0),
            target: None,
        };
        (path.to_owned(), entry)
    }

    #[test]
    fn what_differs_is_told() {
        let file = FileKind::File;
        let before = [
            entry("/a", file, 1, 0o644),
            entry("/b", file, 1, 0o644),
            entry("/c", file, 1, 0o644),
            entry("/d", FileKind::Folder, 1, 0o755),
        ];
        let now = [
            entry("/b", file, 2, 0o644),
            entry("/c", file, 1, 0o600),
            entry("/d", FileKind::Folder, 2, 0o755),
            entry("/e", file, 0, 0o644),
            entry("/f", file, 3, 0o644),
        ];
        let found = changes(&before.into(), &now.into());
        let expected = [
            ("/a", Change::Gone),
            ("/b", Change::Written),
            ("/c", Change::Permitted),
            ("/e", Change::Made),
            ("/f", Change::Made),
            ("/f", Change::Written),
        ];
        assert_eq!(
            found,
            expected.map(|(path, change)| (path.to_owned(), change))
        );
    }
}
