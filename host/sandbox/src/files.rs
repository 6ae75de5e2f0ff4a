//! Access to a sandbox's files from outside. The kernel resolves paths within the sandbox's root:
//! links stay inside, and only files of an overlay are opened, neither `/proc` nor devices.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fchown, mkdirat, openat2, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

/// Maximum number of entries in a listing.
const LISTED_MAX: usize = 10_000;
/// Maximum number of entries in a folder that is read.
const ENTRIES_MAX: usize = 100_000;
/// Maximum number of levels of a folder that is made.
const LEVELS_MAX: usize = 256;
/// Maximum size of all paths of a listing.
const LISTED_BYTES_MAX: usize = 16 << 20;
/// Maximum depth of a removed folder. One descriptor per level stays open meanwhile.
const DEPTH_MAX: usize = 128;

/// The kernel's magic number for overlay file systems.
const OVERLAY: i64 = 0x794c_7630;

/// A file, folder or link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its last part.
    pub name: String,
    /// Path from the root.
    pub path: String,
    /// Its type.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// User and group inside.
    pub owner: UserIds,
    /// Seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Target of a link.
    pub target: Option<String>,
}

/// A user and a group, by their ids inside a sandbox.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct UserIds {
    /// The user's id.
    pub user: u32,
    /// The group's id.
    pub group: u32,
}

impl UserIds {
    /// The root user and its group.
    pub const ROOT: Self = Self::new(0, 0);

    /// A user and a group.
    pub const fn new(user: u32, group: u32) -> Self {
        Self { user, group }
    }
}

/// Type of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link.
    Link,
    /// A socket, a pipe or a device.
    Other,
}

/// The files of a sandbox.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) root: BorrowedFd<'a>,
    /// The first user id of the machine that belongs to the sandbox.
    pub(crate) uid: u32,
    /// Owner inside the sandbox of new files.
    pub(crate) owner: UserIds,
    /// Whether paths may leave the root, so that a test can prove that the protection is needed.
    pub(crate) is_unbounded: bool,
}

/// The error for a file that exceeds the requested size.
pub(crate) fn too_long(bytes_max: u64) -> io::Error {
    let problem = format!("it has more than {bytes_max} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, problem)
}

/// Reads a file, which may grow meanwhile.
pub(crate) fn bytes_of(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_long(bytes_max));
    }
    Ok(bytes)
}

/// Splits a path into the folder and the file's name.
fn split(path: &str) -> io::Result<(PathBuf, String)> {
    let parts: Vec<_> = Path::new(path).components().collect();
    match parts.split_last() {
        Some((Component::Normal(name), above)) => {
            let above: PathBuf = above.iter().collect();
            let above = above.strip_prefix("/").map(Path::to_owned).unwrap_or(above);
            Ok((above, name.to_string_lossy().into_owned()))
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not name a file",
        )),
    }
}

impl Files<'_> {
    fn lookup(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let mut resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut path = if path.as_os_str().is_empty() {
            Path::new("/")
        } else {
            path
        };
        if self.is_unbounded {
            resolve = ResolveFlags::empty();
            path = path.strip_prefix("/").unwrap_or(path);
        }
        let mut flags = flags | OFlags::CLOEXEC;
        if !flags.contains(OFlags::PATH) {
            // Devices and pipes are opened before they are refused; that must neither block nor
            // take a terminal.
            flags |= OFlags::NOCTTY | OFlags::NONBLOCK;
        }
        // The kernel returns EAGAIN if something is renamed meanwhile.
        for _ in 0..16 {
            match openat2(self.root, path, flags, mode, resolve) {
                Err(Errno::AGAIN) => {}
                opened if self.is_unbounded => return Ok(opened?),
                opened => return in_overlay(opened?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        self.lookup(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    /// Opens a file for reading, up to a size limit.
    pub(crate) fn open(&self, path: &str, bytes_max: u64) -> io::Result<File> {
        let file = regular(self.lookup(Path::new(path), OFlags::RDONLY, Mode::empty())?)?;
        if file.metadata()?.len() > bytes_max {
            return Err(too_long(bytes_max));
        }
        Ok(file)
    }

    /// Creates or truncates a file for writing, including missing folders.
    pub(crate) fn create(&self, path: &str, mode: u32) -> io::Result<File> {
        let (above, name) = split(path)?;
        self.make_folders(&above)?;
        let bits = Mode::from_raw_mode(mode & 0o777);
        let fresh = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(self.folder(&above)?, &name, fresh, bits) {
            Ok(file) => {
                self.give(&file)?;
                Ok(file.into())
            }
            Err(Errno::EXIST) => self.replace(Path::new(path), bits),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens an existing file, or the missing target of a link.
    fn replace(&self, path: &Path, bits: Mode) -> io::Result<File> {
        match self.lookup(path, OFlags::WRONLY, Mode::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => {
                let file = regular(found?)?;
                file.set_len(0)?;
                return Ok(file);
            }
        }
        let file = regular(self.lookup(path, OFlags::WRONLY | OFlags::CREATE, bits)?)?;
        self.give(&file)?;
        Ok(file)
    }

    /// Sets the owner of a new file.
    fn give(&self, file: impl AsFd) -> io::Result<()> {
        let UserIds { user, group } = self.owner;
        Ok(fchown(
            file,
            Some(Uid::from_raw(self.uid.saturating_add(user))),
            Some(Gid::from_raw(self.uid.saturating_add(group))),
        )?)
    }

    /// Makes a folder and its missing parents. Returns whether it is new.
    pub(crate) fn make_folders(&self, path: &Path) -> io::Result<bool> {
        match self.folder(path) {
            Ok(_) => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let levels = path.strip_prefix("/").unwrap_or(path).components().count();
        if levels > LEVELS_MAX {
            let problem = format!(
                "it has {levels} levels of folders, at most {LEVELS_MAX} are made; shorten it"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let (mut above, name) = split(&path.to_string_lossy())?;
        let mut missing = vec![name];
        let mut folder = loop {
            match self.folder(&above) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => break found?,
            }
            let (next, name) = split(&above.to_string_lossy())?;
            missing.push(name);
            above = next;
        };
        for name in missing.iter().rev() {
            match mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => {}
                made => made?,
            }
            // No link is followed: it would lead somewhere else than from the root.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let new = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
            folder = if self.is_unbounded {
                new
            } else {
                in_overlay(new)?
            };
            self.give(&folder)?;
        }
        Ok(true)
    }

    /// The entry of a path; links are not followed.
    pub(crate) fn stat(&self, path: &str) -> io::Result<Entry> {
        let Ok((above, name)) = split(path) else {
            let root = self.folder(Path::new("/"))?;
            return self.entry(&root, "/", "", rustix::fs::fstat(&root)?);
        };
        let above = self.folder(&above)?;
        let stat = statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.entry(&above, path, &name, stat)
    }

    fn entry(&self, above: impl AsFd, path: &str, name: &str, stat: Stat) -> io::Result<Entry> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        let target = (kind == FileKind::Link)
            .then(|| rustix::fs::readlinkat(above, name, Vec::new()))
            .transpose()?;
        let inside = |id: u32| id.checked_sub(self.uid).unwrap_or(65_534);
        Ok(Entry {
            name: name.to_owned(),
            path: path.to_owned(),
            kind,
            size: stat.st_size.max(0) as u64,
            mode: stat.st_mode & 0o7777,
            owner: UserIds::new(inside(stat.st_uid), inside(stat.st_gid)),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            target: target.map(|target| target.to_string_lossy().into_owned()),
        })
    }

    /// Lists a folder and `depth` levels of subfolders, by name.
    pub(crate) fn list(&self, path: &str, depth: u32) -> io::Result<Vec<Entry>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut folders = vec![(path.trim_end_matches('/').to_owned(), depth.max(1))];
        while let Some((path, depth)) = folders.pop() {
            let here = if path.is_empty() { "/" } else { &path };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let folder = match self.lookup(Path::new(here), flags, Mode::empty()) {
                // An entry of the kernel, or one that was removed meanwhile.
                Err(_) if !found.is_empty() => continue,
                folder => folder?,
            };
            for name in names(&folder)? {
                let Ok(stat) = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                let name = name.to_string_lossy();
                let inside = format!("{path}/{name}");
                let entry = self.entry(&folder, &inside, &name, stat)?;
                if entry.kind == FileKind::Folder && depth > 1 {
                    folders.push((inside, depth - 1));
                }
                bytes += entry.path.len() + entry.target.as_ref().map_or(0, String::len);
                found.push(entry);
                if bytes > LISTED_BYTES_MAX {
                    let problem = format!("their paths have more than {LISTED_BYTES_MAX} bytes");
                    return Err(io::Error::other(problem));
                }
                if found.len() > LISTED_MAX {
                    let problem = format!(
                        "there are more than {LISTED_MAX} files, which is the limit; list folders \
                         below it, or run `ls` inside"
                    );
                    return Err(io::Error::other(problem));
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Renames a file or folder.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from, old), (to, new)) = (split(from)?, split(to)?);
        self.make_folders(&to)?;
        Ok(renameat(
            self.folder(&from)?,
            &old,
            self.folder(&to)?,
            &new,
        )?)
    }

    /// Removes a file, or a folder with its contents.
    pub(crate) fn remove(&self, path: &str) -> io::Result<()> {
        let (above, name) = split(path)?;
        remove_at(self.folder(&above)?.as_fd(), name.as_ref(), DEPTH_MAX)
    }
}

fn names(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if name != "." && name != ".." {
            names.push(name);
        }
        if names.len() > ENTRIES_MAX {
            let problem = format!("a folder has more than {ENTRIES_MAX} files");
            return Err(io::Error::other(problem));
        }
    }
    names.sort();
    Ok(names)
}

fn remove_at(above: BorrowedFd<'_>, name: &OsStr, depth: usize) -> io::Result<()> {
    match unlinkat(above, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) if depth > 0 => {}
        removed => return Ok(removed?),
    }
    // No links are followed, in case a folder was replaced by one.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(above, name, flags, Mode::empty())?;
    for inside in names(&folder)? {
        remove_at(folder.as_fd(), &inside, depth - 1)?;
    }
    Ok(unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

/// Accepts only files on a sandbox's own disk.
fn in_overlay(file: OwnedFd) -> io::Result<OwnedFd> {
    if rustix::fs::fstatfs(&file)?.f_type == OVERLAY {
        return Ok(file);
    }
    let problem = "it belongs to the kernel; only files on disk can be accessed from outside";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Accepts only regular files.
fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    Ok(file)
}
