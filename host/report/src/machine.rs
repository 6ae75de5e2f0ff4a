//! The machine that figures were measured on.

use serde::Serialize;

/// A machine, as it describes itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The processor's name.
    pub cpu: String,
    /// Memory, in GiB.
    pub memory_gib: f64,
    /// The operating system.
    pub os: String,
}

impl Machine {
    /// This machine; unknown values are `unknown` or 0.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches("kB").trim().parse::<f64>().ok());
        let name = read("/etc/os-release").lines().find_map(|line| {
            let quoted = line.strip_prefix("PRETTY_NAME=")?;
            Some(quoted.trim_matches('"').to_owned())
        });
        let kernel = read("/proc/sys/kernel/osrelease");
        let system = format!("{} {}", std::env::consts::OS, kernel.trim());
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            memory_gib: kib.map_or(0.0, |kib| (kib / 1_048_576.0 * 10.0).round() / 10.0),
            os: name.map_or(system.clone(), |name| format!("{name}, {system}")),
        }
    }

    /// The machine in one line.
    pub fn describe(&self) -> String {
        let Self {
            cores,
            cpu,
            memory_gib,
            os,
        } = self;
        format!("{cores} cores of {cpu}, {memory_gib} GiB, {os}")
    }
}

/// The value after `name` and a colon, in the first line that has it.
pub fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_the_name_counts() {
        let text = "MemTotal:  24 kB\nmodel name\t: A: B\nmodel name\t: C\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24 kB"));
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "model"), None);
    }

    #[test]
    fn a_machine_has_cores_and_a_system() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && !machine.os.is_empty(), "{machine:?}");
    }
}
