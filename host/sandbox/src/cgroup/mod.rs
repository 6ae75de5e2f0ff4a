//! Limits by cgroups. Version 2 has one hierarchy; version 1 has one for each controller, with
//! other file names. A sandbox's processes are all in one cgroup from the first one on, so that
//! none moves between cgroups while commands run: an action's resources are written to the cgroup
//! just before it begins.

mod mounts;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) use mounts::Hierarchy;

/// Period of the limit on CPU time, in microseconds.
const PERIOD_US: u64 = 100_000;
/// Thousandths of a core for a sandbox without running actions: enough for its background processes
/// to answer, too little to matter.
const IDLE_MILLI: u64 = 50;
/// Checks whether all processes are frozen, before freezing is tried again.
const BEGIN_AGAIN: u32 = 50;
/// Timeout for killed processes to disappear, and for processes to freeze.
const GONE_MAX: Duration = Duration::from_secs(5);

/// The limits of a sandbox for its whole life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
}

/// The parent of the sandboxes' cgroups.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    hierarchy: Hierarchy,
    /// The folder of this daemon within the hierarchy.
    own: String,
    cores: Vec<u32>,
}

/// The cgroup of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    hierarchy: Hierarchy,
    name: String,
    cores: Vec<u32>,
}

impl Cgroups {
    /// Opens the folder `own` of a hierarchy, for actions that run on `cores`.
    ///
    /// # Errors
    /// If a folder or file can't be made or written.
    pub(crate) fn open(hierarchy: Hierarchy, own: &str, cores: Vec<u32>) -> io::Result<Self> {
        let own = own.to_owned();
        hierarchy.make(&own)?;
        Ok(Self {
            hierarchy,
            own,
            cores,
        })
    }

    /// Makes the cgroup of a sandbox.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn make(&self, id: &str, limits: Limits) -> io::Result<Cgroup> {
        let cgroup = self.of(id);
        self.hierarchy.make(&cgroup.name)?;
        cgroup.limit(limits)?;
        cgroup.give(&[])?;
        Ok(cgroup)
    }

    /// The cgroup of a sandbox, whether it exists or not.
    pub(crate) fn of(&self, id: &str) -> Cgroup {
        Cgroup {
            hierarchy: self.hierarchy.clone(),
            name: format!("{}/{id}", self.own),
            cores: self.cores.clone(),
        }
    }

    /// Removes the folder of this daemon, which must be empty.
    pub(crate) fn close(&self) {
        for folder in self.hierarchy.folders(&self.own) {
            let _ = fs::remove_dir(folder);
        }
    }

    /// Names of sandboxes that have a cgroup.
    pub(crate) fn found(&self) -> Vec<String> {
        let mut found: Vec<String> = self
            .hierarchy
            .folders(&self.own)
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

impl Cgroup {
    /// Files for moving a process into the cgroup.
    pub(crate) fn procs(&self) -> Vec<PathBuf> {
        let folders = self.hierarchy.folders(&self.name);
        folders
            .into_iter()
            .map(|folder| folder.join("cgroup.procs"))
            .collect()
    }

    fn limit(&self, limits: Limits) -> io::Result<()> {
        let memory = limits.memory_bytes.to_string();
        match &self.hierarchy {
            Hierarchy::Unified(_) => {
                self.write("memory", "memory.max", &memory)?;
                // Absent if the kernel has no swap.
                let _ = self.write("memory", "memory.swap.max", "0");
            }
            Hierarchy::Split(_) => {
                self.write("memory", "memory.limit_in_bytes", &memory)?;
                let _ = self.write("memory", "memory.memsw.limit_in_bytes", &memory);
            }
        }
        self.write("pids", "pids.max", &limits.processes.to_string())
    }

    /// Applies the cores of the running actions; an empty list is one core, whichever.
    pub(crate) fn give(&self, grants: &[&[u32]]) -> io::Result<()> {
        let count: u64 = grants.iter().map(|cores| cores.len().max(1) as u64).sum();
        let pinned = !grants.is_empty() && grants.iter().all(|cores| !cores.is_empty());
        let mut set = if pinned {
            grants.concat()
        } else {
            self.cores.clone()
        };
        set.sort_unstable();
        set.dedup();
        let set: Vec<String> = set.iter().map(u32::to_string).collect();
        let quota = match count {
            0 => PERIOD_US * IDLE_MILLI / 1_000,
            count => PERIOD_US * count,
        };
        match &self.hierarchy {
            Hierarchy::Unified(_) => {
                self.write("cpu", "cpu.max", &format!("{quota} {PERIOD_US}"))?;
            }
            Hierarchy::Split(_) => {
                self.write("cpu", "cpu.cfs_quota_us", &quota.to_string())?;
            }
        }
        self.write("cpuset", "cpuset.cpus", &set.join(","))
    }

    /// Freezes or resumes all processes.
    pub(crate) fn freeze(&self, frozen: bool) -> io::Result<()> {
        let until = Instant::now() + GONE_MAX;
        let mut tries = 0;
        loop {
            self.tell(frozen)?;
            if !frozen || self.is_frozen() {
                return Ok(());
            }
            if Instant::now() > until {
                let _ = self.tell(false);
                return Err(io::Error::other("it could not be stopped in time"));
            }
            std::thread::sleep(Duration::from_millis(1));
            tries += 1;
            // Version 1 may miss new processes, and then has to begin again.
            if tries % BEGIN_AGAIN == 0 && matches!(self.hierarchy, Hierarchy::Split(_)) {
                self.tell(false)?;
            }
        }
    }

    fn tell(&self, frozen: bool) -> io::Result<()> {
        match &self.hierarchy {
            Hierarchy::Unified(_) => {
                self.write("freezer", "cgroup.freeze", if frozen { "1" } else { "0" })
            }
            Hierarchy::Split(_) => {
                let state = if frozen { "FROZEN" } else { "THAWED" };
                self.write("freezer", "freezer.state", state)
            }
        }
    }

    fn is_frozen(&self) -> bool {
        match &self.hierarchy {
            Hierarchy::Unified(_) => {
                let events = self.read("freezer", "cgroup.events");
                events.lines().any(|line| line == "frozen 1")
            }
            Hierarchy::Split(_) => self.read("freezer", "freezer.state").trim() == "FROZEN",
        }
    }

    /// Number of processes that the kernel killed because of the memory limit.
    pub(crate) fn out_of_memory(&self) -> u64 {
        let file = match &self.hierarchy {
            Hierarchy::Unified(_) => "memory.events",
            Hierarchy::Split(_) => "memory.oom_control",
        };
        let told = self.read("memory", file);
        let count = told.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Current memory use in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let file = match &self.hierarchy {
            Hierarchy::Unified(_) => "memory.current",
            Hierarchy::Split(_) => "memory.usage_in_bytes",
        };
        self.read("memory", file).trim().parse().unwrap_or(0)
    }

    /// Kills all processes, and removes the cgroup. Returns whether nothing is left.
    pub(crate) fn remove(&self) -> bool {
        let until = Instant::now() + GONE_MAX;
        loop {
            // Repeated, because a copy of its files may freeze it again.
            let _ = self.freeze(false);
            if matches!(self.hierarchy, Hierarchy::Unified(_)) {
                let _ = self.write("freezer", "cgroup.kill", "1");
            }
            let folders = self.hierarchy.folders(&self.name);
            for folder in &folders {
                for pid in pids(folder) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let left = folders.iter().filter(|folder| {
                fs::remove_dir(folder).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            });
            match left.count() {
                0 => return true,
                _ if Instant::now() > until => return false,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Pids of its processes, as the machine numbers them.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let folders = self.hierarchy.folders(&self.name);
        let first = folders.first().map(|folder| pids(folder));
        let pids = first.unwrap_or_default().into_iter();
        pids.map(|pid| pid.as_raw_nonzero().get()).collect()
    }

    fn write(&self, controller: &str, file: &str, text: &str) -> io::Result<()> {
        let path = self.hierarchy.folder(controller, &self.name).join(file);
        fs::write(path, text)
            .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))
    }

    fn read(&self, controller: &str, file: &str) -> String {
        let path = self.hierarchy.folder(controller, &self.name).join(file);
        fs::read_to_string(path).unwrap_or_default()
    }
}

fn pids(folder: &Path) -> Vec<Pid> {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let numbers = listed.lines().filter_map(|line| line.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}
