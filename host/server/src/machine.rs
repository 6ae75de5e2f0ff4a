//! What this machine has.

/// Memory of a machine that does not say how much it has.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// Cores that this process may use.
pub(crate) fn cores() -> u64 {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |cores| cores.get() as u64)
}

/// Bytes of memory.
pub(crate) fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&text).unwrap_or(MEMORY_UNKNOWN)
}

/// Memory that is free, or can be made so, in MiB.
pub(crate) fn memory_free_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "MemAvailable:").map_or(u64::MAX, |bytes| bytes >> 20)
}

fn total(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal:")
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The machine's name with a port, for people.
pub(crate) fn name(addr: std::net::SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "machine".into());
    format!("{}:{}", host.trim(), addr.port())
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
