//! Measures the disk usage of a sandbox. Its processes continue to write, and may be hostile: links
//! are not followed, deep folders use few descriptors, and deleted open files count.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, statat, statfs,
};

/// Size of a block in the system's counts.
const BLOCK_BYTES: u64 = 512;
/// Minimum size of a file, so that empty ones are not free.
const FILE_BYTES: u64 = 4 << 10;
/// Maximum length of a path from one open folder to the next.
const PATH_BYTES_MAX: usize = 512;
/// Maximum number of open folders above a folder, each after such a path. Only an attack is deeper.
const ANCHORS_MAX: usize = 256;
/// Maximum number of open files of all threads of a sandbox. Only an attack has more.
const LOOKS_MAX: u64 = 4_000_000;
/// Magic numbers of file systems in memory: `tmpfs` and `hugetlbfs`.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x9584_58f6];

/// A folder to visit: an open folder above it, the path from there, and the number of open folders.
type Place = (Rc<OwnedFd>, PathBuf, usize);

/// Disk usage, counting each file once.
#[derive(Default)]
struct Total {
    bytes: u64,
    /// Files with several links, by device and inode.
    met: BTreeSet<(u64, u64)>,
}

impl Total {
    fn add(&mut self, stat: &Stat, again: bool) {
        if !again || self.met.insert((stat.st_dev, stat.st_ino)) {
            self.bytes += (stat.st_blocks as u64 * BLOCK_BYTES).max(FILE_BYTES);
        }
    }
}

/// Disk usage of a folder and its contents. Files that vanish meanwhile are not counted.
pub(crate) fn of_folder(folder: &Path) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let Ok(top) = rustix::fs::open(folder, flags, Mode::empty()) else {
        return 0;
    };
    let mut total = Total::default();
    let mut places: Vec<Place> = vec![(Rc::new(top), PathBuf::from("."), 1)];
    while let Some((anchor, path, anchors)) = places.pop() {
        let Ok(here) = openat2(&*anchor, &path, flags, Mode::empty(), resolve) else {
            continue;
        };
        let here = Rc::new(here);
        let Ok(entries) = Dir::read_from(&*here) else {
            continue;
        };
        let place = if path.as_os_str().len() < PATH_BYTES_MAX {
            (anchor, path, anchors)
        } else if anchors < ANCHORS_MAX {
            (here.clone(), PathBuf::from("."), anchors + 1)
        } else {
            return u64::MAX;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            let Ok(stat) = statat(&*here, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if name == b"." || name == b".." {
                continue;
            }
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            total.add(&stat, !is_folder && stat.st_nlink > 1);
            if is_folder {
                let name = std::ffi::OsStr::from_bytes(name);
                places.push((place.0.clone(), place.1.join(name), place.2));
            }
        }
    }
    total.bytes
}

/// Disk usage of deleted files that are open or mapped in these processes.
pub(crate) fn of_nameless(processes: &[i32]) -> u64 {
    let (mut total, mut looks) = (Total::default(), 0_u64);
    for process in processes {
        let process = PathBuf::from(format!("/proc/{process}"));
        // Threads may have separate descriptors.
        for thread in paths(&process.join("task")) {
            for file in paths(&thread.join("fd")) {
                looks += 1;
                if looks > LOOKS_MAX {
                    return u64::MAX;
                }
                add_nameless(&mut total, &file);
            }
        }
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        for line in maps.lines().filter(|line| line.ends_with(" (deleted)")) {
            let range = line.split(' ').next().unwrap_or_default();
            add_nameless(&mut total, &process.join("map_files").join(range));
        }
    }
    total.bytes
}

fn add_nameless(total: &mut Total, file: &Path) {
    let Ok(stat) = rustix::fs::stat(file) else {
        return;
    };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file && stat.st_nlink == 0 && is_on_disk(file).unwrap_or(false) {
        total.add(&stat, true);
    }
}

fn is_on_disk(file: &Path) -> io::Result<bool> {
    Ok(!IN_MEMORY.contains(&statfs(file)?.f_type))
}

fn paths(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
