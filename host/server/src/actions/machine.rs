//! What this machine has.

/// Memory of a machine that does not say how much it has.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// Cores that this process may use.
pub(super) fn cores() -> u64 {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |cores| cores.get() as u64)
}

/// Bytes of memory.
pub(super) fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&text).unwrap_or(MEMORY_UNKNOWN)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        assert_eq!(total("MemTotal:  2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total("nothing"), None);
        assert!(memory_bytes() > 0 && cores() > 0);
    }
}
