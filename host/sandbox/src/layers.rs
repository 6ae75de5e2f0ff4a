//! Folders of files: copies of them, and their end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How deep a folder is looked into while it is removed; what is deeper is brought up first. A path
/// of so many parts is one that the kernel takes.
const DEPTH_MAX: u32 = 12;

/// Copies a folder that nobody writes to, with owners, links, holes and the marks of overlays.
///
/// # Errors
/// What `cp` told.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let copied = Command::new("cp")
        .args([
            "--archive",
            "--reflink=auto",
            "--sparse=auto",
            "--no-target-directory",
            "--",
        ])
        .args([from, to])
        .env("LC_ALL", "C")
        .output()?;
    if copied.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&copied.stderr);
    let told = told.lines().next().unwrap_or("it failed").to_owned();
    Err(io::Error::other(told))
}

/// Removes a folder that nobody writes to, however far that was already done. However deep it is, it
/// takes few descriptors and little of the stack.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let mut brought = 0;
    loop {
        match clear(folder, folder, 0, &mut brought).and_then(|()| fs::remove_dir(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            done => return done,
        }
    }
}

/// Removes what is in a folder, and brings what is too deep up to `top`.
fn clear(folder: &Path, top: &Path, depth: u32, brought: &mut u64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if !entry.file_type()?.is_dir() {
            fs::remove_file(&path)?;
        } else if depth < DEPTH_MAX {
            clear(&path, top, depth + 1, brought)?;
            fs::remove_dir(&path)?;
        } else {
            bring(&path, top, brought)?;
        }
    }
    Ok(())
}

/// Gives a folder a place in `top`, by a name that nothing else there has.
fn bring(folder: &Path, top: &Path, brought: &mut u64) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    loop {
        *brought += 1;
        match fs::rename(folder, top.join(format!("deep-{brought}"))) {
            Err(error)
                if matches!(
                    error.kind(),
                    AlreadyExists | DirectoryNotEmpty | NotADirectory
                ) => {}
            done => return done,
        }
    }
}

/// Makes a folder that root inside owns.
pub(crate) fn make_owned(folder: &Path, uid: u32) -> io::Result<()> {
    fs::create_dir(folder)?;
    std::os::unix::fs::chown(folder, Some(uid), Some(uid))
}

/// Names of the folders in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The private parts of a sandbox: one for each overlay, with what the kernel needs beside it.
pub(crate) fn parts(folder: &Path, overlay: usize) -> (PathBuf, PathBuf) {
    let part = folder.join(format!("{overlay}"));
    (part.join("files"), part.join("work"))
}
