//! Resources of this machine.

use std::path::PathBuf;
use treadle_config::Machine;

/// The assumed memory if the system does not report it.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// Cores that this process may use.
pub fn cores() -> u64 {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |cores| cores.get() as u64)
}

/// Its cores and its memory.
pub fn measure() -> Machine {
    Machine {
        cores: cores(),
        memory_bytes: memory_bytes(),
    }
}

/// Bytes of memory.
pub fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&text).unwrap_or(MEMORY_UNKNOWN)
}

/// Memory that is free or reclaimable, in MiB.
pub fn memory_free_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "MemAvailable:").map_or(u64::MAX, |bytes| bytes >> 20)
}

/// The absolute form of a configured path, if there is one, because programs started with it run in
/// other folders. A bare name is a program to be searched for.
pub fn path(given: &str) -> Option<PathBuf> {
    let path = PathBuf::from(given);
    if given.is_empty() || !given.contains('/') {
        return (!given.is_empty()).then_some(path);
    }
    Some(std::path::absolute(&path).unwrap_or(path))
}

/// The absolute form of a configured folder, which is never searched for.
pub fn folder(given: &str) -> Option<PathBuf> {
    let path = PathBuf::from(given);
    (!given.is_empty()).then(|| std::path::absolute(&path).unwrap_or(path))
}

fn total(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal:")
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The machine's name with a port, for display.
pub fn name(addr: std::net::SocketAddr) -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "machine".into());
    format!("{}:{}", host.trim(), addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_root() {
        let here = std::env::current_dir().expect("a folder");
        assert_eq!((path(""), folder("")), (None, None));
        assert_eq!(path("keeper"), Some("keeper".into()));
        assert_eq!(path("bin/keeper"), Some(here.join("bin/keeper")));
        assert_eq!(folder("work"), Some(here.join("work")));
        assert_eq!(folder("/srv/work"), Some("/srv/work".into()));
    }

    #[test]
    fn memory_is_read() {
        assert_eq!(total("MemTotal:  2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total("nothing"), None);
        assert!(memory_bytes() > 0 && cores() > 0);
    }
}
