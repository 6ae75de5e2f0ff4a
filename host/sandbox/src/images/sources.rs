//! Permitted sources of images on this machine: files below the operator's listed folders, except
//! the daemon's own. Otherwise clients could read any file by importing it, and reading the
//! daemon's own files would make them its admin.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use crate::error::SandboxError;

/// Where the kernel exposes processes, their variables and the machine itself.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Name of the file beside the store with the first admin token.
const TOKEN: &str = "admin-token";
/// Maximum number of files that are checked for other names of the daemon's own files.
const FILES_MAX: usize = 2_000_000;

/// Permitted sources of images on this machine.
#[derive(Clone, Debug, Default)]
pub struct ImageSources {
    /// The listed folders.
    pub folders: Vec<PathBuf>,
    /// Files and folders of the daemon: neither they nor folders that contain them become images.
    pub private: Vec<PathBuf>,
    /// The store's file. In its folder, only listed subfolders that are not the store's may become
    /// images.
    pub store: Option<PathBuf>,
}

/// An opened source, so that no other file can take its place.
#[derive(Debug)]
pub(crate) struct Source(OwnedFd);

impl Source {
    /// A path to it, while it is open.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl ImageSources {
    /// Opens the source at a path.
    ///
    /// # Errors
    /// If it does not exist, is not below a listed folder, or is the daemon's own.
    pub(crate) fn open(&self, path: &Path) -> Result<Source, SandboxError> {
        let wrong = |problem: String| SandboxError::Value("path", problem);
        let shown = path.display();
        if self.folders.is_empty() {
            let problem = "can't be imported: no folder is listed in `sandboxes.image_folders`; ask the machine's operator to list the folder with images";
            return Err(wrong(problem.to_owned()));
        }
        let outside = || {
            let problem = format!(
                "is {shown}, which is not below a folder of `sandboxes.image_folders`; move it there, or ask the operator to list its folder"
            );
            wrong(problem)
        };
        let failed = |error| SandboxError::File {
            path: shown.to_string(),
            error,
        };
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            // Only within listed folders is it revealed whether a file exists.
            Err(_) if !self.names(path) => return Err(outside()),
            Err(error) => return Err(failed(error)),
        };
        let folders = self
            .folders
            .iter()
            .filter_map(|folder| fs::canonicalize(folder).ok());
        let below: Vec<_> = folders.filter(|folder| real.starts_with(folder)).collect();
        if below.is_empty() {
            return Err(outside());
        }
        let own = || {
            let problem = format!(
                "is {shown}, which is one of the daemon's own files or contains one; import a folder without the daemon's files"
            );
            wrong(problem)
        };
        if self.is_private(&real) || below.iter().all(|folder| self.is_store(&real, folder)) {
            return Err(own());
        }
        let source = held(&real).map_err(failed)?;
        if self.has_other_name(&source.path()).map_err(failed)? {
            return Err(own());
        }
        Ok(source)
    }

    /// Whether a path, as written, is below a listed folder.
    fn names(&self, path: &Path) -> bool {
        let is_plain = path.components().all(|part| part != Component::ParentDir);
        is_plain && self.folders.iter().any(|folder| path.starts_with(folder))
    }

    fn is_private(&self, real: &Path) -> bool {
        let kernel = KERNEL.into_iter().map(PathBuf::from);
        let own = self.private.iter().map(|own| real_of(own));
        let mut all = kernel.chain(own);
        all.any(|own| real.starts_with(&own) || own.starts_with(real))
    }

    /// Whether it is in the store's folder or contains that, and the listed folder does not make it
    /// an exception.
    fn is_store(&self, real: &Path, listed: &Path) -> bool {
        let Some((folder, file)) = self.store.as_deref().and_then(parts) else {
            return false;
        };
        let Ok(below) = real.strip_prefix(&folder) else {
            return folder.starts_with(real);
        };
        let first = below.components().next();
        let first = first.map_or(OsStr::new(""), Component::as_os_str);
        let first = first.as_encoded_bytes();
        let is_own =
            first.starts_with(file.as_encoded_bytes()) || first.starts_with(TOKEN.as_bytes());
        is_own || listed == folder || !listed.starts_with(&folder)
    }

    /// Whether a file, or one in a folder, is a hard link to a file of the daemon.
    fn has_other_name(&self, path: &Path) -> io::Result<bool> {
        let own = self.own_files();
        let is_own = |found: &Metadata| found.is_file() && own.contains(&id(found));
        let metadata = fs::metadata(path)?;
        if !metadata.is_dir() {
            return Ok(is_own(&metadata));
        }
        let (mut folders, mut count) = (vec![path.to_owned()], 0);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                count += 1;
                if count > FILES_MAX {
                    let problem = format!("it has more than {FILES_MAX} files");
                    return Err(io::Error::other(problem));
                }
                if is_own(&metadata) {
                    return Ok(true);
                }
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        Ok(false)
    }

    /// The daemon's files by device and inode.
    fn own_files(&self) -> BTreeSet<(u64, u64)> {
        let store = self.store.as_deref().and_then(parts);
        let store = store.map(|(folder, _)| folder);
        let mut files = BTreeSet::new();
        for path in self.private.iter().chain(&store) {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let inside = entries.filter_map(|entry| entry.metadata().ok());
            let all = fs::metadata(path).into_iter().chain(inside);
            files.extend(all.filter(Metadata::is_file).map(|file| id(&file)));
        }
        files
    }
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// The folder and the name of the store's file.
fn parts(file: &Path) -> Option<(PathBuf, &OsStr)> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Some((real_of(folder), file.file_name()?))
}

/// Resolves a path as far as it exists.
fn real_of(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) if !above.as_os_str().is_empty() => real_of(above).join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

/// Opens a path without links; fails if it contains one by now.
fn held(real: &Path) -> io::Result<Source> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let source = Source(opened?);
    let kind = fs::metadata(source.path())?.file_type();
    if kind.is_file() || kind.is_dir() {
        return Ok(source);
    }
    Err(io::Error::new(
        ErrorKind::InvalidInput,
        "it is neither a folder nor a file",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine: `images` is listed, `state` has the store, and `etc` the configuration.
    fn machine() -> (tempfile::TempDir, ImageSources) {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in [
            "images/debian/etc",
            "state/images/debian",
            "state/treadle.db.sandboxes/sandboxes/s1",
            "etc/treadle",
            "other",
        ] {
            fs::create_dir_all(at(path)).unwrap();
        }
        for path in [
            "images/debian/etc/hosts",
            "images/debian.tar",
            "state/treadle.db",
            "state/admin-token",
            "etc/treadle/config.toml",
            "other/file",
        ] {
            fs::write(at(path), path).unwrap();
        }
        let sources = ImageSources {
            folders: vec![at("images")],
            private: vec![at("etc/treadle/config.toml"), at("kv")],
            store: Some(at("state/treadle.db")),
        };
        (folder, sources)
    }

    fn told(sources: &ImageSources, path: &Path) -> String {
        let opened = sources.open(path);
        opened.map_or_else(|error| error.to_string(), |_| "taken".to_owned())
    }

    #[test]
    fn only_files_below_listed_folders_are_accepted() {
        let (folder, sources) = machine();
        let at = |path: &str| folder.path().join(path);
        symlink(at("other"), at("images/out")).unwrap();
        symlink(at("images/debian"), at("images/in")).unwrap();
        symlink(at("images/debian"), at("other/in")).unwrap();
        for good in [
            "images",
            "images/debian",
            "images/debian.tar",
            "images/in",
            "other/in",
        ] {
            assert_eq!(told(&sources, &at(good)), "taken", "{good}");
        }
        for bad in [
            "other",
            "other/file",
            "other/none",
            "images/../other",
            "images/out",
            "images/out/file",
            "images/none/../../other",
            "imagesand",
            "state",
            "state/admin-token",
            "",
        ] {
            let told = told(&sources, &at(bad));
            assert!(told.contains("not below a folder"), "{bad}: {told}");
        }
        assert!(told(&sources, &at("images/none")).contains("No such file"));
        let none = ImageSources {
            folders: Vec::new(),
            ..sources
        };
        assert!(told(&none, &at("images/debian")).contains("no folder is listed"));
    }

    #[test]
    fn the_daemons_own_files_are_never_accepted() {
        let (folder, mut sources) = machine();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir(at("kv")).unwrap();
        sources.folders = vec![
            PathBuf::from("/"),
            at(""),
            at("state"),
            at("state/treadle.db.sandboxes"),
            at("etc"),
            at("kv"),
        ];
        for bad in [
            "",
            "state",
            "state/treadle.db",
            "state/admin-token",
            "state/images",
            "state/treadle.db.sandboxes/sandboxes/s1",
            "etc",
            "etc/treadle",
            "etc/treadle/config.toml",
            "kv",
        ] {
            let told = told(&sources, &at(bad));
            assert!(told.contains("the daemon's own"), "{bad}: {told}");
        }
        for bad in [
            "/",
            "/proc",
            "/proc/self/environ",
            "/proc/self/root",
            "/sys",
            "/dev/null",
        ] {
            let told = told(&sources, Path::new(bad));
            assert!(told.contains("the daemon's own"), "{bad}: {told}");
        }
        assert_eq!(told(&sources, &at("other")), "taken");
        // Of the store's folder one that is listed itself, and is not the store's.
        sources.folders.push(at("state/images"));
        assert_eq!(told(&sources, &at("state/images/debian")), "taken");
    }

    #[test]
    fn hard_links_to_the_daemons_files_are_refused() {
        let (folder, sources) = machine();
        let at = |path: &str| folder.path().join(path);
        for (own, name) in [
            ("state/admin-token", "images/debian/etc/token"),
            ("etc/treadle/config.toml", "images/archive.tar"),
        ] {
            fs::hard_link(at(own), at(name)).unwrap();
            let told = told(&sources, &at(name));
            assert!(told.contains("the daemon's own"), "{name}: {told}");
        }
        assert!(told(&sources, &at("images/debian")).contains("the daemon's own"));
        assert_eq!(told(&sources, &at("images/debian.tar")), "taken");
    }

    #[test]
    fn an_opened_source_can_t_be_replaced() {
        let (folder, sources) = machine();
        let at = |path: &str| folder.path().join(path);
        let source = sources.open(&at("images/debian")).unwrap();
        fs::rename(at("images/debian"), at("images/before")).unwrap();
        symlink(at("state"), at("images/debian")).unwrap();
        let inside = fs::read_dir(source.path()).unwrap().flatten();
        let names: Vec<_> = inside.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["etc"]);
    }
}
