//! Files: opened without following links, written so that they are there as a whole or not at all.

use crate::checksum::{Algorithm, Digest, Hasher};
use crate::error::{At, Result, StoreError};
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Bytes that are worked on at once; they fit into a processor's cache.
pub(crate) const PIECE: usize = 1 << 20;

/// Opens a regular file to read, and does not follow a link.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        // A pipe must not make this wait.
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
        .at(path)?;
    is_regular(file, path)
}

/// Opens a file that is there to read and write, and does not follow a link.
pub(crate) fn open_to_write(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
        .at(path)?;
    is_regular(file, path)
}

/// Opens a regular file to read; links are followed.
pub(crate) fn open_through_links(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .at(path)?;
    is_regular(file, path)
}

fn is_regular(file: File, path: &Path) -> Result<File> {
    if file.metadata().at(path)?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("is not a regular file")).at(path)
}

/// Reads a small file.
pub(crate) fn read_small(file: &File, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).at(path)?;
    if bytes.len() as u64 > bytes_max {
        let error = format!("has more than {bytes_max} bytes, the most that are read");
        return Err(io::Error::other(error)).at(path);
    }
    Ok(bytes)
}

/// What is in a folder, by name. There is a bound.
pub(crate) fn names_in(folder: &Path, names_max: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).at(folder)? {
        // A name that is no text is nobody's here.
        if let Ok(name) = entry.at(folder)?.file_name().into_string() {
            names.push(name);
        }
        if names.len() > names_max {
            let error = format!("has more than {names_max} entries, the most that are read");
            return Err(io::Error::other(error)).at(folder);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Checks that the disk of a folder has room for this many bytes more.
pub(crate) fn check_room(folder: &Path, needed: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(folder).map_err(io::Error::from);
    let disk = disk.at(folder)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needed <= free {
        return Ok(());
    }
    let folder = folder.to_owned();
    Err(StoreError::NoRoom {
        folder,
        needed,
        free,
    })
}

/// Makes changes to a folder's entries durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .at(folder)
}

/// Renames a folder within its parent, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).at(to)?;
    to.parent().map_or(Ok(()), sync_folder)
}

/// Removes a folder, if it is there.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at(folder),
    }
}

/// Writes a new file, durably.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create_new(path).at(path)?;
    file.write_all(bytes).at(path)?;
    file.sync_all().at(path)
}

/// Copies a file into a new one, durably. Returns its checksum.
pub(crate) fn copy_new(from: &File, to: &Path, algorithm: Algorithm) -> Result<(Digest, u64)> {
    let mut file = File::create_new(to).at(to)?;
    let mut hasher = Hasher::new(algorithm);
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        let read = from.read_at(&mut piece, at).at(to)?;
        if read == 0 {
            break;
        }
        hasher.update(&piece[..read]);
        file.write_all(&piece[..read]).at(to)?;
        at += read as u64;
    }
    file.sync_all().at(to)?;
    Ok((hasher.finish(), at))
}

/// The checksum of a file.
pub(crate) fn digest_of(file: &File, path: &Path, algorithm: Algorithm) -> Result<Digest> {
    let mut hasher = Hasher::new(algorithm);
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        let read = file.read_at(&mut piece, at).at(path)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&piece[..read]);
        at += read as u64;
    }
}

/// A part of a file.
#[derive(Clone, Copy)]
pub(crate) struct Part<'f> {
    pub(crate) file: &'f File,
    pub(crate) at: u64,
    pub(crate) left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Has the disk write a file's bytes while more of them are made, so that making them durable at the
/// end takes less time.
pub(crate) fn flushing<R>(file: &File, work: impl FnOnce(&Flush) -> R) -> R {
    thread::scope(|scope| {
        let (sender, wanted) = sync_channel(1);
        scope.spawn(move || {
            // A failure shows again when the file is made durable.
            while wanted.recv().is_ok_and(|()| file.sync_data().is_ok()) {}
        });
        work(&Flush(sender))
    })
}

/// Asks for bytes to be written to the disk.
pub(crate) struct Flush(SyncSender<()>);

impl Flush {
    /// Asks for it, unless it was asked for already.
    pub(crate) fn soon(&self) {
        let _ = self.0.try_send(());
    }
}

/// A lock that ends with the process, or when this is dropped.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for a lock that nobody else can have.
    pub(crate) fn wait(path: &Path) -> Result<Self> {
        let file = lock_file(path)?;
        file.lock().at(path)?;
        Ok(Self { _file: file })
    }

    /// Takes a lock that nobody else can have, unless somebody has it.
    pub(crate) fn take(path: &Path, what: &'static str) -> Result<Self> {
        let file = lock_file(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy(what)),
            Err(TryLockError::Error(error)) => Err(error).at(path),
        }
    }

    /// Takes a lock that others can have too. None if the folder can't be written to.
    pub(crate) fn share(path: &Path) -> Result<Option<Self>> {
        let file = match open(path) {
            Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                match lock_file(path) {
                    Ok(file) => file,
                    Err(StoreError::Io { .. }) => return Ok(None),
                    Err(other) => return Err(other),
                }
            }
            found => found?,
        };
        file.lock_shared().at(path)?;
        Ok(Some(Self { _file: file }))
    }
}

fn lock_file(path: &Path) -> Result<File> {
    // Others write to the store: a link must not have a file created elsewhere.
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).at(folder)?;
        if folder.symlink_metadata().at(folder)?.is_symlink() {
            return Err(io::Error::other("is a link")).at(folder);
        }
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
        .at(path)?;
    is_regular(file, path)
}
