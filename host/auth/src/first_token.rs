//! The first token: created if no token for the whole daemon is valid, printed once, and written to
//! a file beside the store for the command line on the same machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use treadle_config::StoreConfig;
use treadle_store::Location;

/// Name of the file, in the folder of the store.
const FILE_NAME: &str = "admin-token";

/// A newly generated secret.
#[derive(Clone, Debug)]
pub struct FirstToken {
    /// The secret.
    pub secret: String,
    /// The file that has it, if any.
    pub file: Option<PathBuf>,
}

/// The file of the first token of a daemon with this store; `None` if the store is in memory.
pub fn file_of(store: &StoreConfig) -> Option<PathBuf> {
    match store.location() {
        Location::File(path) => Some(path.parent().unwrap_or(Path::new("")).join(FILE_NAME)),
        // The path is the command line's only clue.
        Location::Postgres(_) if store.path != "memory" => Some(
            Path::new(&store.path)
                .parent()
                .unwrap_or(Path::new(""))
                .join(FILE_NAME),
        ),
        Location::Postgres(_) | Location::Memory => None,
    }
}

/// Writes a secret to a file that only its owner can read, replacing an existing one.
pub(super) fn write(path: &Path, secret: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    // If the store is a database, the folder may not exist yet.
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{secret}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join(FILE_NAME);
        write(&path, "tr_0").unwrap();
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, "tr_1").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "tr_1\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn it_lies_beside_the_store() {
        let mut store = StoreConfig::default();
        let beside = Path::new(".treadle/admin-token").to_owned();
        assert_eq!(file_of(&store), Some(beside));
        "memory".clone_into(&mut store.path);
        assert_eq!(file_of(&store), None);
    }
}
