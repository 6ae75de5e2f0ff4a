//! Processes in `/proc`: descendants, and the processes of an attempt.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};
use serde::{Deserialize, Serialize};

/// A process, distinguished from later ones with the same pid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// When it started, in ticks since boot.
    pub(crate) start: u64,
}

impl Identity {
    /// The process that has this pid now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let start = stat_field(pid, 22)?;
        Some(Self { pid, start })
    }

    /// Kills it if it is still the same process. Returns whether it was.
    pub(crate) fn kill(self) -> bool {
        kill_if(self.pid, || Self::of(self.pid) == Some(self))
    }

    /// Whether it still exists, except as a zombie.
    pub(crate) fn lives(self) -> bool {
        Self::of(self.pid) == Some(self) && state(self.pid) != Some('Z')
    }
}

/// Id of the machine's current boot.
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Kills a process that `is_it` accepts. A pidfd is opened before the check, so that the signal
/// can't reach another process.
fn kill_if(pid: i32, is_it: impl FnOnce() -> bool) -> bool {
    let Some(number) = Pid::from_raw(pid) else {
        return false;
    };
    let Ok(held) = pidfd_open(number, PidfdFlags::empty()) else {
        return false;
    };
    is_it() && pidfd_send_signal(held, Signal::KILL).is_ok()
}

fn stat(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// A number in `/proc/PID/stat`, counted as in proc(5), from 3 on. The name before may contain
/// anything, including brackets.
fn stat_field(pid: i32, field: usize) -> Option<u64> {
    let stat = stat(pid)?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field - 3)?.parse().ok()
}

fn state(pid: i32) -> Option<char> {
    let stat = stat(pid)?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// All processes of the machine.
fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Children of all threads of a process, available since Linux 4.2.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut found = Vec::new();
    for thread in threads.into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = text.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// All descendants of a process, without itself.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let mut found = children(root);
    let mut at = 0;
    while at < found.len() {
        for child in children(found[at]) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        at += 1;
    }
    found
}

/// Sends a signal to all descendants of this process.
pub(crate) fn signal_descendants(root: i32, signal: Signal) {
    for pid in descendants(root).into_iter().filter_map(Pid::from_raw) {
        // Fails if it has ended by now.
        let _ = kill_process(pid, signal);
    }
}

/// Approximate private memory of a process's descendants: resident pages not backed by files. Pages
/// that are shared by a fork count for both.
pub(crate) fn memory_of_descendants(root: i32, page_bytes: u64) -> u64 {
    let of = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (resident, files) = (pages.next()?.ok()?, pages.next()?.ok()?);
        Some(resident.saturating_sub(files) * page_bytes)
    };
    descendants(root).into_iter().filter_map(of).sum()
}

/// Kills every process whose environment variable has one of these values. Returns their number.
pub(crate) fn kill_marked(variable: &str, values: &BTreeSet<&str>) -> usize {
    let has_mark = |variable_of: &[u8]| {
        let text = std::str::from_utf8(variable_of).ok();
        let value = text.and_then(|text| text.strip_prefix(variable)?.strip_prefix('='));
        value.is_some_and(|value| values.contains(value))
    };
    let is_marked = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(has_mark)
    };
    let own = own_pid();
    let found = all()
        .into_iter()
        .filter(|pid| *pid != own && is_marked(*pid));
    found
        .filter(|pid| kill_if(*pid, || is_marked(*pid)))
        .count()
}

/// The pid of this process.
pub(crate) fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_pid() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let identity = Identity::of(pid).unwrap();
        assert!(identity.lives());
        assert!(descendants(own_pid()).contains(&pid));
        let other = Identity {
            start: identity.start + 1,
            ..identity
        };
        assert!(!other.kill() && !other.lives());
        assert!(
            child.try_wait().unwrap().is_none(),
            "another's is left alone"
        );
        assert!(identity.kill());
        child.wait().unwrap();
        assert!(!identity.lives() && !identity.kill());
        assert_eq!(Identity::of(-1), None);
    }

    #[test]
    fn marks_find_processes_wherever_they_went() {
        let mark = format!("test-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env("TREADLE_MARK", &mark)
            .spawn()
            .unwrap();
        let other = BTreeSet::from(["another"]);
        assert_eq!(kill_marked("TREADLE_MARK", &other), 0);
        let marks = BTreeSet::from(["another", mark.as_str()]);
        // Until it has started, its environment is its parent's.
        while kill_marked("TREADLE_MARK", &marks) == 0 {
            std::thread::yield_now();
        }
        assert!(!child.wait().unwrap().success());
    }
}
