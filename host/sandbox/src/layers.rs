//! Folders of files: their size, and copies of them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a block as the system counts them.
const BLOCK_BYTES: u64 = 512;
/// What a file counts at least, so that empty ones are not free.
const FILE_BYTES: u64 = 256;

/// Bytes on disk of a folder with all that is in it. What vanishes meanwhile is not counted.
pub(crate) fn size(folder: &Path) -> u64 {
    let mut total = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            total += metadata.blocks() * BLOCK_BYTES + FILE_BYTES;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    total
}

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

/// Removes a folder, however far that was already done.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
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
