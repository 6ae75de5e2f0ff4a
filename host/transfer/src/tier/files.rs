//! The files of a tier.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use treadle_trust::private_folder;
use xxhash_rust::xxh3::Xxh3;

use crate::copy::Digest;
use crate::{CopyId, KvCopy, TransferError};

/// Extension of a copy's bytes.
const KV: &str = "kv";
/// Extension of a copy's handle.
const HANDLE: &str = "json";
/// Extension of incomplete files.
const PARTIAL: &str = "part";
/// The file that one process locks.
const LOCK: &str = "lock";
/// Prefix of the tier's files in the engines' folder.
pub(super) const SLOT_FILE: &str = "treadle-";
/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A tier's folder, and the engines' folder.
pub(super) struct Folder {
    path: PathBuf,
    slots: PathBuf,
    /// Whether the folders are on different file systems, so that files between them exist twice.
    crosses: bool,
    /// Locked while the tier is open.
    _lock: File,
}

impl Folder {
    pub(super) fn open(path: &Path, slots: &Path) -> Result<Self, TransferError> {
        private_folder(path).map_err(TransferError::file("creating", path))?;
        // Engines of other users may read and write here.
        fs::create_dir_all(slots).map_err(TransferError::file("creating", slots))?;
        let name = path.join(LOCK);
        let lock = File::create(&name).map_err(TransferError::file("creating", &name))?;
        lock.try_lock().map_err(|error| {
            let error = std::io::Error::other(format!(
                "{error}; another process has opened this tier; give each a separate folder"
            ));
            TransferError::file("locking", &name)(error)
        })?;
        let device = |folder: &Path| {
            let seen = fs::metadata(folder).map_err(TransferError::file("looking at", folder));
            seen.map(|seen| seen.dev())
        };
        Ok(Self {
            crosses: device(path)? != device(slots)?,
            path: path.to_owned(),
            slots: slots.to_owned(),
            _lock: lock,
        })
    }

    /// The engines' folder.
    pub(super) fn slots(&self) -> &Path {
        &self.slots
    }

    /// Whether files between the two folders exist twice.
    pub(super) fn crosses(&self) -> bool {
        self.crosses
    }

    pub(super) fn kv(&self, id: CopyId) -> PathBuf {
        self.path.join(format!("{id}.{KV}"))
    }

    /// The path of a copy while it is received.
    pub(super) fn partial(&self, id: CopyId) -> PathBuf {
        self.path.join(format!("{id}.{PARTIAL}"))
    }

    fn handle(&self, id: CopyId) -> PathBuf {
        self.path.join(format!("{id}.{HANDLE}"))
    }

    /// Turns a received copy into a complete one.
    pub(super) fn commit(&self, copy: &KvCopy) -> Result<(), TransferError> {
        let handle = copy.to_handle()?;
        let (partial, kv) = (self.partial(copy.id), self.kv(copy.id));
        fs::rename(&partial, &kv).map_err(TransferError::file("renaming", &partial))?;
        let written = fs::write(&partial, handle.as_bytes())
            .map_err(TransferError::file("writing", &partial))
            .and_then(|()| {
                let name = self.handle(copy.id);
                fs::rename(&partial, &name).map_err(TransferError::file("renaming", &partial))
            });
        if written.is_err() {
            super::remove_file(&partial);
            self.remove(copy.id);
        }
        written
    }

    /// Removes a copy: its handle first, so that an incomplete copy is never considered complete.
    pub(super) fn remove(&self, id: CopyId) {
        super::remove_file(&self.handle(id));
        super::remove_file(&self.kv(id));
    }

    /// Records the use of a copy.
    pub(super) fn touch(&self, id: CopyId) {
        let name = self.handle(id);
        let touched = File::options()
            .append(true)
            .open(&name)
            .and_then(|file| file.set_modified(SystemTime::now()));
        if let Err(error) = touched {
            tracing::debug!(path = %name.display(), %error, "could not record the use of a copy");
        }
    }

    /// The complete copies, the least recently used first. Other files are removed.
    pub(super) fn scan(&self) -> Result<Vec<KvCopy>, TransferError> {
        let mut found = Vec::new();
        for path in list(&self.path)? {
            match self.read(&path) {
                FileKind::Whole(used, copy) => found.push((used, copy)),
                FileKind::Part => {
                    super::remove_file(&path);
                }
                FileKind::Other => {}
            }
        }
        found.sort_by_key(|(used, copy)| (*used, copy.id));
        Ok(found.into_iter().map(|(_, copy)| *copy).collect())
    }

    fn read(&self, path: &Path) -> FileKind {
        let name = path.file_stem().and_then(OsStr::to_str);
        let Some(id) = name.and_then(CopyId::parse) else {
            return FileKind::Other;
        };
        match path.extension().and_then(OsStr::to_str) {
            Some(KV) if self.handle(id).exists() => FileKind::Other,
            Some(KV | PARTIAL) => FileKind::Part,
            Some(HANDLE) => {
                if let Some((used, copy)) = self.whole(id) {
                    return FileKind::Whole(used, Box::new(copy));
                }
                super::remove_file(&self.kv(id));
                FileKind::Part
            }
            _ => FileKind::Other,
        }
    }

    fn whole(&self, id: CopyId) -> Option<(SystemTime, KvCopy)> {
        let name = self.handle(id);
        let used = fs::metadata(&name).ok()?.modified().ok()?;
        let copy = KvCopy::from_handle(&fs::read_to_string(&name).ok()?).ok()?;
        let bytes = fs::metadata(self.kv(id)).ok()?.len();
        (copy.id == id && copy.bytes == bytes).then_some((used, copy))
    }
}

/// The kind of a file.
enum FileKind {
    Whole(SystemTime, Box<KvCopy>),
    Part,
    Other,
}

/// The files of a folder.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>, TransferError> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    read().map_err(TransferError::file("listing", folder))
}

/// Whether a file and its names have been unchanged for this long.
pub(super) fn is_older(path: &Path, age: Duration) -> bool {
    let Ok(seen) = fs::metadata(path) else {
        return false;
    };
    // A copy's second name may be newer than its bytes.
    let changed = u64::try_from(seen.ctime()).unwrap_or_default();
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
    SystemTime::now()
        .duration_since(changed)
        .is_ok_and(|passed| passed >= age)
}

/// Moves a file; copies it if the paths are on different file systems.
pub(super) fn move_file(from: &Path, to: &Path) -> Result<(), TransferError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            let copied = fs::copy(from, to).map_err(TransferError::file("copying", from));
            super::remove_file(from);
            copied.map(|_| ())
        }
        moved => moved.map_err(TransferError::file("moving", from)),
    }
}

/// Links a file to a second name; copies it to another file system.
pub(super) fn link_file(from: &Path, to: &Path) -> Result<(), TransferError> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => fs::copy(from, to)
            .map(|_| ())
            .map_err(TransferError::file("copying", from)),
        linked => linked.map_err(TransferError::file("linking", from)),
    }
}

/// A file's length and the hash of its bytes.
pub(super) fn digest(path: &Path) -> Result<(u64, Digest), TransferError> {
    let mut hasher = Xxh3::new();
    let mut read = || -> std::io::Result<u64> {
        let mut file = File::open(path)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut bytes = 0;
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                return Ok(bytes);
            }
            bytes += read as u64;
            hasher.update(&piece[..read]);
        }
    };
    let bytes = read().map_err(TransferError::file("reading", path))?;
    Ok((bytes, Digest::of(&hasher)))
}
