//! Files and folders that only the daemon's user can read.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permissions of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Creates a folder that only its owner can access, or removes others' permissions from an existing
/// one. One that belongs to another user is unchanged, which is logged.
///
/// # Errors
/// It can't be created.
pub fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)?;
    make_private(path)
}

/// Creates a file that only its owner can access, or removes others' permissions from an existing
/// one.
///
/// An existing file is not opened: closing it would release this process's POSIX locks on it, such
/// as those of SQLite.
///
/// # Errors
/// It can't be created.
pub fn private_file(path: &Path) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let options = options.append(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match make_private(path) {
            // A link to a file that does not exist yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                options.create(true).open(path)?;
                make_private(path)
            }
            made => made,
        },
        opened => opened.map(|_| ()),
    }
}

/// Removes others' permissions from a file or a folder. One that belongs to another user is
/// unchanged; both cases are logged.
///
/// # Errors
/// It does not exist.
pub fn make_private(path: &Path) -> io::Result<()> {
    let seen = std::fs::metadata(path)?;
    let mode = seen.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let (path_shown, narrow) = (path.display(), mode & !OTHERS);
    match std::fs::set_permissions(path, std::fs::Permissions::from_mode(narrow)) {
        Ok(()) => tracing::warn!(
            path = %path_shown,
            "others could access it with mode {mode:o}; changed to mode {narrow:o}"
        ),
        Err(error) => tracing::warn!(
            path = %path_shown, owner = seen.uid(), %error,
            "others can access it with mode {mode:o}; run chmod go= on it as its owner"
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_there_is_tightened_and_what_is_new_is_private() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a").join("b");
        private_folder(&folder).unwrap();
        assert_eq!(
            (mode(&folder), mode(folder.parent().unwrap())),
            (0o700, 0o700)
        );
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        private_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        let file = folder.join("f");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o664)).unwrap();
        private_file(&file).unwrap();
        private_file(&folder.join("new")).unwrap();
        assert_eq!((mode(&file), mode(&folder.join("new"))), (0o600, 0o600));
        assert!(make_private(&folder.join("absent")).is_err());
    }
}
