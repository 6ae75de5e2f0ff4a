//! Limits by cgroups (version 2), if a folder is delegated to the daemon, such as that of its
//! systemd unit with `Delegate=yes` and `DelegateSubgroup=daemon`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pens::remove;

/// Controllers that must be available in the folder.
const CONTROLLERS: [&str; 3] = ["cpu", "cpuset", "memory"];
/// Period of the limit on CPU time, in microseconds.
const PERIOD_US: u64 = 100_000;

/// A folder for cgroups.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    root: PathBuf,
    home: PathBuf,
}

/// The cgroup of one attempt.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroups {
    /// Opens a folder that is delegated to the daemon.
    ///
    /// # Errors
    /// If it does not exist, lacks a controller, or is not writable.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let offered = fs::read_to_string(root.join("cgroup.controllers"))?;
        for controller in CONTROLLERS {
            if !offered
                .split_ascii_whitespace()
                .any(|name| name == controller)
            {
                let told = format!("{} lacks the controller {controller}", root.display());
                return Err(io::Error::other(told));
            }
        }
        let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        fs::write(root.join("cgroup.subtree_control"), wanted)?;
        // A cgroup with controllers can't contain processes itself.
        let home = root.join("supervisors");
        make(&home)?;
        let root = root.to_owned();
        Ok(Self { root, home })
    }

    /// Makes the cgroup of an attempt.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn make(
        &self,
        name: &str,
        cores: &[u32],
        memory_bytes_max: Option<u64>,
    ) -> io::Result<Cgroup> {
        let folder = self.folder_of(name);
        make(&folder)?;
        let cgroup = Cgroup { folder };
        if !cores.is_empty() {
            let quota = PERIOD_US * cores.len() as u64;
            cgroup.write("cpu.max", &format!("{quota} {PERIOD_US}"))?;
            let list: Vec<String> = cores.iter().map(u32::to_string).collect();
            cgroup.write("cpuset.cpus", &list.join(","))?;
        }
        if let Some(max) = memory_bytes_max {
            cgroup.write("memory.max", &max.to_string())?;
            // Absent if the kernel has no swap.
            let _ = cgroup.write("memory.swap.max", "0");
        }
        Ok(cgroup)
    }

    /// The cgroup of the supervisors.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The folder of an attempt's cgroup.
    pub(crate) fn folder_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Cgroup {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the kernel killed one of its processes because of the memory limit.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default();
        let count = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        count.is_some_and(|count| count.trim() != "0")
    }

    /// Removes it, with retries, because processes that have just ended stay in it for a moment.
    pub(crate) fn remove(self) {
        if !remove(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), "could not remove a cgroup that is still in use");
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), text)
            .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With plain files in place of the kernel's.
    #[test]
    fn limits_are_written_in_the_kernels_format() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let error = Cgroups::open(root).unwrap_err().to_string();
        assert!(error.ends_with("lacks the controller cpuset"), "{error}");
        fs::write(
            root.join("cgroup.controllers"),
            "cpuset cpu io memory pids\n",
        )
        .unwrap();
        let cgroups = Cgroups::open(root).unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(
            read(root.join("cgroup.subtree_control")),
            "+cpu +cpuset +memory"
        );
        assert!(cgroups.home().is_dir());
        let cgroup = cgroups.make("x7-1", &[1, 2, 5], Some(64 << 20)).unwrap();
        let folder = cgroup.folder().to_owned();
        assert_eq!(read(folder.join("cpu.max")), "300000 100000");
        assert_eq!(read(folder.join("cpuset.cpus")), "1,2,5");
        assert_eq!(read(folder.join("memory.max")), "67108864");
        assert!(!cgroup.ran_out_of_memory());
        let events = "low 0\nmax 9\noom 1\noom_kill 0\n";
        fs::write(folder.join("memory.events"), events).unwrap();
        assert!(!cgroup.ran_out_of_memory());
        fs::write(
            folder.join("memory.events"),
            events.replace("kill 0", "kill 2"),
        )
        .unwrap();
        assert!(cgroup.ran_out_of_memory());
        let free = cgroups.make("x8-1", &[], None).unwrap();
        assert!(
            fs::read_dir(free.folder())
                .unwrap()
                .all(|entry| { entry.unwrap().file_name() == "memory.swap.max" })
        );
        let folder = free.folder().to_owned();
        free.remove();
        assert!(!folder.exists());
    }
}
