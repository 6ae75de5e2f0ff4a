//! Checks of the host tier of KV caches: its folders, their file system, and free space.

use super::{Finding, Grade};
use std::path::Path;
use treadle_config::Config;

/// Name of this area.
const AREA: &str = "kv";

/// Checks the tier's folders, if one is configured.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let kv = &config.kv;
    if !kv.has_tier() {
        return Vec::new();
    }
    let folders = [
        ("kv.folder", Path::new(&kv.folder)),
        ("kv.slots_folder", Path::new(&kv.slots_folder)),
    ];
    let mut findings: Vec<Finding> = folders
        .iter()
        .map(|(key, path)| of_folder(key, path))
        .collect();
    let [(_, tier), (_, slots)] = folders;
    if let (Ok(tier), Ok(slots)) = (rustix::fs::stat(tier), rustix::fs::stat(slots)) {
        findings.push(of_devices(tier.st_dev == slots.st_dev));
    }
    if let Ok(room) = rustix::fs::statvfs(tier) {
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        findings.push(of_room(free, kv.host_bytes_max, held_bytes(tier)));
    }
    findings
}

fn of_folder(key: &str, path: &Path) -> Finding {
    let check = format!("{key} {}", path.display());
    if path.is_dir() {
        return Finding::ok(AREA, check, "is there");
    }
    let (grade, seen) = if path.exists() {
        (Grade::Fail, "is not a folder")
    } else {
        (Grade::Warn, "does not exist yet")
    };
    let remedy = "the daemon creates it at startup; llama.cpp needs its folder before it starts";
    Finding::of(AREA, check, grade, seen, remedy)
}

fn of_devices(same: bool) -> Finding {
    let check = "file systems";
    if same {
        return Finding::ok(AREA, check, "both folders are on the same one");
    }
    Finding::of(
        AREA,
        check,
        Grade::Warn,
        "the folders are on different ones, so that every copy is written twice",
        "put kv.slots_folder and kv.folder on one file system",
    )
}

/// The tier's current content does not need free space.
fn of_room(free: u64, bytes_max: u64, held: u64) -> Finding {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let seen = format!(
        "{:.1} GiB are free; the tier may use {:.1} GiB and uses {:.1}",
        gib(free),
        gib(bytes_max),
        gib(held)
    );
    if free.saturating_add(held) < bytes_max {
        let remedy = "free some space, or lower kv.host_bytes_max";
        return Finding::of(AREA, "room", Grade::Warn, seen, remedy);
    }
    Finding::ok(AREA, "room", seen)
}

fn held_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut config = Config::default();
        assert!(examine(&config).is_empty(), "there is no tier");
        config.kv.host_bytes_max = 1 << 20;
        config.kv.folder = path("tier");
        config.kv.slots_folder = path("slots");
        let grades = |config: &Config| -> Vec<Grade> {
            examine(config).iter().map(|found| found.grade).collect()
        };
        assert_eq!(grades(&config), [Grade::Warn, Grade::Warn]);
        std::fs::create_dir(path("tier")).unwrap();
        std::fs::create_dir(path("slots")).unwrap();
        assert_eq!(grades(&config), [Grade::Ok; 4]);
        config.kv.host_bytes_max = u64::MAX;
        assert_eq!(grades(&config)[3], Grade::Warn);
        config.kv.slots_folder = path("file");
        std::fs::write(path("file"), "").unwrap();
        assert_eq!(grades(&config)[1], Grade::Fail);
    }
}
