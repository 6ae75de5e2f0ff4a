//! Limits by cgroups. Version 2 has one hierarchy; version 1 has one for each controller, with
//! other file names. The cgroups of a tenant's sandboxes are in one of the tenant, which limits the
//! memory of all of them together. A sandbox's processes are all in one cgroup from the first one
//! on, so that none moves between cgroups while commands run: an action's resources are written to
//! the cgroup just before it begins.

mod mounts;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

use crate::digest::hex;

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
    /// Memory of all sandboxes of the tenant.
    pub(crate) tenant_memory_bytes: u64,
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

/// The cgroup of a sandbox or of a tenant.
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
        let cgroups = Self {
            hierarchy,
            own,
            cores,
        };
        let all = cgroups.at(cgroups.own.clone());
        if matches!(all.hierarchy, Hierarchy::Split(_)) {
            // Kernels before 5.11 would not count the memory of cgroups inside. It can't be set
            // while there are any, and then it is set already.
            let _ = all.write("memory", "memory.use_hierarchy", "1");
        }
        Ok(cgroups)
    }

    /// Limits the memory of all sandboxes together.
    pub(crate) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        self.at(self.own.clone()).limit_memory_soon(bytes)
    }

    /// Makes the cgroup of a tenant's sandbox.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn make(&self, id: &str, tenant: &str, limits: Limits) -> io::Result<Cgroup> {
        let of_tenant = self.of_tenant(tenant);
        self.hierarchy.make(&of_tenant.name)?;
        of_tenant.limit_memory_soon(limits.tenant_memory_bytes)?;
        let cgroup = self.of(id, tenant);
        self.hierarchy.make(&cgroup.name)?;
        cgroup.limit(limits)?;
        cgroup.give(&[])?;
        Ok(cgroup)
    }

    /// The cgroup of a tenant's sandbox, whether it exists or not.
    pub(crate) fn of(&self, id: &str, tenant: &str) -> Cgroup {
        self.at(format!("{}/{id}", self.of_tenant(tenant).name))
    }

    /// The cgroup of a tenant, whether it exists or not. It has no processes itself, and stays
    /// until the daemon ends.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Cgroup {
        let digest = Sha256::digest(tenant.as_bytes());
        self.at(format!("{}/of-{}", self.own, hex(&digest[..8])))
    }

    fn at(&self, name: String) -> Cgroup {
        Cgroup {
            hierarchy: self.hierarchy.clone(),
            name,
            cores: self.cores.clone(),
        }
    }

    /// Removes the folder of this daemon, whose sandboxes must be gone.
    pub(crate) fn close(&self) {
        let tenants = self.found().into_iter().map(|cgroup| cgroup.name);
        for name in tenants.chain([self.own.clone()]) {
            for folder in self.hierarchy.folders(&name) {
                let _ = fs::remove_dir(folder);
            }
        }
    }

    /// The cgroups that exist, those inside of others first. An earlier version had those of
    /// sandboxes where those of tenants are.
    pub(crate) fn found(&self) -> Vec<Cgroup> {
        let inside = |name: &String| -> Vec<String> {
            let folders = self.hierarchy.folders(name).into_iter();
            let entries = folders.filter_map(|folder| fs::read_dir(folder).ok());
            let entries = entries.flatten().filter_map(Result::ok);
            let folders = entries.filter(|at| at.file_type().is_ok_and(|kind| kind.is_dir()));
            let names = folders.filter_map(|at| at.file_name().into_string().ok());
            let mut names: Vec<_> = names.map(|at| format!("{name}/{at}")).collect();
            names.sort();
            names.dedup();
            names
        };
        let tenants = inside(&self.own);
        let sandboxes: Vec<String> = tenants.iter().flat_map(inside).collect();
        let found = sandboxes.into_iter().chain(tenants);
        found.map(|name| self.at(name)).collect()
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

    /// Its name below the root of the hierarchy.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn limit(&self, limits: Limits) -> io::Result<()> {
        self.limit_memory(limits.memory_bytes)?;
        self.write("pids", "pids.max", &limits.processes.to_string())
    }

    /// Limits its memory, with that of cgroups inside.
    ///
    /// # Errors
    /// `ResourceBusy` if its processes have more and version 1 can't take it from them; version 2
    /// kills some.
    pub(crate) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let memory = bytes.to_string();
        match &self.hierarchy {
            Hierarchy::Unified(_) => {
                self.write("memory", "memory.max", &memory)?;
                // Absent if the kernel has no swap.
                let _ = self.write("memory", "memory.swap.max", "0");
                Ok(())
            }
            Hierarchy::Split(_) => {
                // The limit with swap is never less than that without, so it rises first.
                let with_swap = "memory.memsw.limit_in_bytes";
                let _ = self.write("memory", with_swap, &memory);
                self.write("memory", "memory.limit_in_bytes", &memory)?;
                match self.write("memory", with_swap, &memory) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(error),
                    // Absent if the kernel does not count swap.
                    _ => Ok(()),
                }
            }
        }
    }

    /// Limits its memory, unless its processes have more and it can't be taken from them.
    fn limit_memory_soon(&self, bytes: u64) -> io::Result<()> {
        match self.limit_memory(bytes) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            limited => limited,
        }
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
