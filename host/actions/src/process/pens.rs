//! Cgroups of supervisors. Each supervisor has its own cgroup, which contains everything that it
//! starts, independent of sessions, environments and the supervisor's fate. These cgroups set no
//! limits, and need only rights over the daemon's own cgroup. A supervisor is in its cgroup before
//! it gets an order, so that no process moves between cgroups while actions run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};

/// How long removing a cgroup is retried, because processes that have just ended stay in it for a
/// moment.
const REMOVAL_MAX: Duration = Duration::from_millis(500);
/// Pause between two attempts.
const AGAIN: Duration = Duration::from_millis(2);
/// Younger folders may be about to be used.
const OLD: Duration = Duration::from_mins(1);
/// The version 1 controller whose hierarchy is used if there is no version 2.
const CONTROLLER: &str = "freezer";

/// The parent of the supervisors' cgroups.
#[derive(Clone, Debug)]
pub(crate) struct Pens(Arc<Root>);

#[derive(Debug)]
struct Root {
    folder: PathBuf,
    next: AtomicU64,
}

/// The cgroup of one supervisor, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Pen {
    folder: PathBuf,
    /// Held so that the parent is removed last.
    within: Pens,
}

impl Pens {
    /// Prefix of the folders of daemons.
    pub(crate) const NAME: &str = "treadle-actions-";

    /// Opens the folder with this name below this process's cgroup, and ends all processes in it.
    /// `None` if that is not permitted.
    pub(crate) fn open(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mut at = homes(&mounts, &own).into_iter();
        at.find_map(|home| Self::below(&home, name).ok())
    }

    fn below(home: &Path, name: &str) -> io::Result<Self> {
        // Moving a process requires write access to both.
        access(home.join("cgroup.procs"), Access::WRITE_OK)?;
        let folder = home.join(name);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        access(folder.join("cgroup.procs"), Access::WRITE_OK)?;
        clear(&folder);
        sweep(home);
        let next = AtomicU64::new(1);
        Ok(Self(Arc::new(Root { folder, next })))
    }

    /// Makes a cgroup.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn make(&self) -> io::Result<Pen> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let folder = self.0.folder.join(number.to_string());
        fs::create_dir(&folder)?;
        let within = self.clone();
        Ok(Pen { folder, within })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        clear(&self.folder);
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Pen {
    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        // Its supervisor has ended, or is about to.
        if fs::remove_dir(&self.folder).is_err() {
            let (folder, within) = (self.folder.clone(), self.within.clone());
            std::thread::spawn(move || {
                remove(&folder);
                drop(within);
            });
        }
    }
}

/// Candidate folders of a process's cgroup, from its tables, version 2 first.
fn homes(mounts: &str, own: &str) -> Vec<PathBuf> {
    let own_path = |is_it: &dyn Fn(&str) -> bool| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_it(controllers).then_some(path)
        })
    };
    let has = |list: &str| list.split(',').any(|one| one == CONTROLLER);
    let of_version_2 = own_path(&|controllers| controllers.is_empty());
    let of_version_1 = own_path(&has);
    let mount = |is_it: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            is_it(kind, options).then_some(at)
        })
    };
    let version_2 = mount(&|kind, _| kind == "cgroup2").zip(of_version_2);
    let version_1 = mount(&|kind, options| kind == "cgroup" && has(options)).zip(of_version_1);
    let found = version_2.into_iter().chain(version_1);
    found
        .map(|(at, path)| PathBuf::from(format!("{at}{}", path.trim_end_matches('/'))))
        .collect()
}

/// Moves this process, and so everything it starts later, into a cgroup.
///
/// # Errors
/// The system's.
pub(crate) fn enter(cgroup: &Path) -> io::Result<()> {
    let mut procs = File::options()
        .write(true)
        .open(cgroup.join("cgroup.procs"))?;
    procs.write_all(b"0")
}

/// Kills all processes in a cgroup except some pids. Returns the number of processes except those.
pub(crate) fn kill_all_in(cgroup: &Path, spared: &[i32]) -> usize {
    let listed = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let all: Vec<i32> = listed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    // Missing in kernels before 5.14 and in version 1.
    if !all.iter().any(|pid| spared.contains(pid))
        && let Ok(mut kill) = File::options().write(true).open(cgroup.join("cgroup.kill"))
    {
        let _ = kill.write_all(b"1");
    }
    let mut count = 0;
    for pid in all.into_iter().filter(|pid| !spared.contains(pid)) {
        count += 1;
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    count
}

/// Removes an empty cgroup. Returns whether it is gone.
pub(crate) fn remove(cgroup: &Path) -> bool {
    let until = Instant::now() + REMOVAL_MAX;
    loop {
        match fs::remove_dir(cgroup) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) if Instant::now() < until => std::thread::sleep(AGAIN),
            Err(_) => return false,
        }
    }
}

/// Ends all processes in the cgroups of a folder, and removes them.
fn clear(folder: &Path) {
    let inside = folders(folder);
    let until = Instant::now() + REMOVAL_MAX;
    while inside
        .iter()
        .map(|cgroup| kill_all_in(cgroup, &[]))
        .sum::<usize>()
        > 0
    {
        if Instant::now() > until {
            tracing::error!(folder = %folder.display(), "could not end processes of actions");
            return;
        }
        std::thread::sleep(AGAIN);
    }
    for cgroup in inside {
        remove(&cgroup);
    }
}

/// Removes empty folders that killed daemons have left.
fn sweep(home: &Path) {
    let is_old = |path: &Path| {
        let made = fs::metadata(path).and_then(|found| found.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > OLD))
    };
    for root in folders(home) {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(Pens::NAME) && is_old(&root) {
            for cgroup in folders(&root).iter().filter(|cgroup| is_old(cgroup)) {
                let _ = fs::remove_dir(cgroup);
            }
            let _ = fs::remove_dir(&root);
        }
    }
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_looked_for_where_the_process_is() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let own = "9:name=systemd:/a\n6:freezer:/b/c\n4:memory:/d\n0::/e/f.service\n";
        let at = |mounts: &str, own: &str| {
            let homes = homes(mounts, own).into_iter();
            homes
                .map(|home| home.display().to_string())
                .collect::<Vec<_>>()
        };
        let (two, one) = (
            "/sys/fs/cgroup/unified/e/f.service",
            "/sys/fs/cgroup/freezer/b/c",
        );
        assert_eq!(at(mounts, own), [two, one]);
        assert_eq!(at(mounts, "6:freezer:/\n"), ["/sys/fs/cgroup/freezer"]);
        assert!(at("", own).is_empty() && at(mounts, "").is_empty());
    }

    #[test]
    fn what_may_not_be_written_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        assert!(Pens::below(home.path(), "x").is_err(), "it is no cgroup");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        assert_eq!(kill_all_in(home.path(), &[]), 0);
    }

    #[test]
    fn all_that_is_in_a_cgroup_ends_and_the_cgroup_goes() {
        let name = format!("treadle-test-{}", std::process::id());
        // Not every machine lets its tests have one.
        let Some(pens) = Pens::open(&name) else {
            return;
        };
        let pen = pens.make().unwrap();
        let folder = pen.folder().to_owned();
        let mut sleep = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        fs::write(folder.join("cgroup.procs"), sleep.id().to_string()).unwrap();
        let number = i32::try_from(sleep.id()).unwrap();
        assert_eq!(kill_all_in(&folder, &[number]), 0);
        assert_eq!(sleep.try_wait().unwrap(), None);
        assert_eq!(kill_all_in(&folder, &[]), 1);
        assert!(!sleep.wait().unwrap().success());
        assert_eq!(kill_all_in(&folder, &[]), 0);
        drop(pen);
        drop(pens);
        let until = Instant::now() + Duration::from_secs(20);
        while folder.parent().unwrap().exists() {
            assert!(Instant::now() < until, "it stays");
            std::thread::yield_now();
        }
    }
}
