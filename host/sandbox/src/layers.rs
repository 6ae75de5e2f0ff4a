//! Folders of files: copying and removal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Depth to which a folder is removed recursively; deeper folders are moved up first. A path of
/// this depth is accepted by the kernel.
const DEPTH_MAX: u32 = 12;

/// The system's error for a path that is too long, in the locale `C`.
const TOO_LONG: &str = "File name too long";

/// Copies an idle folder, with owners, links, holes and overlay attributes.
///
/// # Errors
/// What `cp` says is wrong, without the paths of the machine.
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
    let told = told.lines().next().unwrap_or("it failed");
    let cause = told.rsplit(": ").next().unwrap_or(told);
    Err(if cause == TOO_LONG {
        io::ErrorKind::InvalidFilename.into()
    } else {
        io::Error::other(cause.to_owned())
    })
}

/// Removes an idle folder, even if it was partly removed before. At any depth, it uses few
/// descriptors and little stack.
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

/// Removes the contents of a folder, and moves folders that are too deep to `top`.
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

/// Moves a folder to `top` under a unique name.
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

/// Makes a folder owned by root inside.
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

/// The private parts of a sandbox: one for each overlay, with the kernel's work folder beside it.
pub(crate) fn parts(folder: &Path, overlay: usize) -> (PathBuf, PathBuf) {
    let part = folder.join(format!("{overlay}"));
    (part.join("files"), part.join("work"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_is_reported_without_the_paths_of_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("from");
        fs::create_dir(&from).unwrap();
        let deep = vec!["d".repeat(200); 20].join("/");
        let mut command = Command::new("mkdir");
        let status = command.args(["-p", &deep]).current_dir(&from).status();
        assert!(status.unwrap().success());
        let error = copy(&from, &root.path().join("x".repeat(100))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
        assert!(!error.to_string().contains("ddd"), "{error}");
        let error = copy(&root.path().join("none"), &root.path().join("to")).unwrap_err();
        assert_eq!(error.to_string(), "No such file or directory");
    }
}
