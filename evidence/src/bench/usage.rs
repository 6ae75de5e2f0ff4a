//! What processes have used, as Linux reports it.

use super::BenchError;
use super::machine::field;
use std::collections::{BTreeMap, BTreeSet};

/// Linux reports CPU time in hundredths of a second on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// CPU time of a process so far, in seconds.
fn cpu_s(pid: u32) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/stat");
    let stat = Stat::of(&read(&path)?).ok_or_else(|| unexpected(path))?;
    Ok(stat.own_s)
}

/// CPU time of a process and of all that it has started so far, in seconds.
pub(super) fn family_cpu_s(pid: u32) -> Result<f64, BenchError> {
    let stats = stats();
    if !stats.contains_key(&pid) {
        return cpu_s(pid);
    }
    let spent = |pid: &u32| stats.get(pid).map_or(0.0, |stat| stat.own_s + stat.ended_s);
    Ok(family_in(&stats, pid).iter().map(spent).sum())
}

/// The processes that a process has started and that those have, itself included.
pub(super) fn family(pid: u32) -> BTreeSet<u32> {
    family_in(&stats(), pid)
}

/// Memory that a process holds at present, in MiB.
pub(super) fn resident_mib(pid: u32) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let kib = field(&read(&path)?, "VmRSS")
        .and_then(|text| text.trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.map(|kib| kib / 1_024.0).ok_or_else(|| unexpected(path))
}

/// What a line of `/proc/PID/stat` has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    parent: u32,
    /// User and system time, in seconds.
    own_s: f64,
    /// That of its children that have ended.
    ended_s: f64,
}

impl Stat {
    fn of(stat: &str) -> Option<Self> {
        // The second field is a name in brackets that may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let s = |place: usize| Some(fields.get(place)?.parse::<f64>().ok()? / TICKS_PER_S);
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own_s: s(11)? + s(12)?,
            ended_s: s(13)? + s(14)?,
        })
    }
}

/// All processes; those that end meanwhile are left out.
fn stats() -> BTreeMap<u32, Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let pids = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, Stat::of(&stat)?))
    })
    .collect()
}

fn family_in(stats: &BTreeMap<u32, Stat>, pid: u32) -> BTreeSet<u32> {
    let mut family = BTreeSet::from([pid]);
    loop {
        let children = stats
            .iter()
            .filter(|(child, stat)| family.contains(&stat.parent) && !family.contains(child));
        let children: Vec<u32> = children.map(|(child, _)| *child).collect();
        if children.is_empty() {
            return family;
        }
        family.extend(children);
    }
}

fn read(path: &str) -> Result<String, BenchError> {
    std::fs::read_to_string(path).map_err(|error| BenchError::Usage {
        path: path.to_owned(),
        cause: error.to_string(),
    })
}

fn unexpected(path: String) -> BenchError {
    let cause = "it has another form than that of Linux".to_owned();
    BenchError::Usage { path, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_and_system_time() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 9 11 20 0 4 0 100 1 1";
        let stat = Stat::of(stat).unwrap();
        assert_eq!(stat.parent, 1);
        assert!((stat.own_s - 3.0).abs() < 1e-9 && (stat.ended_s - 0.2).abs() < 1e-9);
        assert_eq!(Stat::of("7 (x"), None);
    }

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let stat = |parent| Stat {
            parent,
            own_s: 1.0,
            ended_s: 0.0,
        };
        let stats = BTreeMap::from([
            (1, stat(0)),
            (2, stat(5)),
            (5, stat(1)),
            (6, stat(1)),
            (9, stat(2)),
        ]);
        assert_eq!(family_in(&stats, 5), BTreeSet::from([2, 5, 9]));
        assert_eq!(family_in(&stats, 77), BTreeSet::from([77]));
    }
}
