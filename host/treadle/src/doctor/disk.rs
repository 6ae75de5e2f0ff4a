//! Free disk space for the store's file and the cache of compiled policies.

use super::{Finding, Grade};
use std::path::{Path, PathBuf};
use treadle_config::Config;
use treadle_store::Location;

/// Name of this area.
const AREA: &str = "disk";
/// With less free space the store's next writes fail.
const FAIL_BYTES: u64 = 100 << 20;
/// With less free space a warning is due.
const WARN_BYTES: u64 = 2 << 30;

/// Free space in each folder.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let Location::File(path) = config.store.location() else {
        let finding = "the store has no local file; the database server's disk is not checked";
        return vec![Finding::ok(AREA, "store", finding)];
    };
    vec![of_room(&path, free_bytes(&existing(&path)))]
}

/// The nearest existing folder above a path.
fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = absolute.ancestors().skip(1).find(|folder| folder.is_dir());
    found.map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let room = rustix::fs::statvfs(folder)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

fn of_room(path: &Path, free: std::io::Result<u64>) -> Finding {
    let check = format!("room for {}", path.display());
    let free = match free {
        Ok(free) => free,
        Err(error) => {
            let remedy = "check that the folder exists, and its permissions";
            return Finding::of(AREA, check, Grade::Warn, error.to_string(), remedy);
        }
    };
    let finding = format!("{:.1} GiB are free", free as f64 / f64::from(1 << 30));
    let remedy = "free some space, or keep less: `store.keep_events`, `store.keep_ended_s`";
    if free < FAIL_BYTES {
        Finding::of(AREA, check, Grade::Fail, finding, remedy)
    } else if free < WARN_BYTES {
        Finding::of(AREA, check, Grade::Warn, finding, remedy)
    } else {
        Finding::ok(AREA, check, finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_graded() {
        let grade = |free| of_room(Path::new("x"), Ok(free)).grade;
        assert_eq!(grade(FAIL_BYTES - 1), Grade::Fail);
        assert_eq!(grade(WARN_BYTES - 1), Grade::Warn);
        assert_eq!(grade(WARN_BYTES), Grade::Ok);
        assert!(free_bytes(&existing(Path::new("/no/such/folder/x.db"))).is_ok());
    }
}
