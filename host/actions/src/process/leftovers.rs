//! Ends what is left of attempts whose daemon or supervisor is gone. What there is in their cgroups is
//! theirs, and what descends from their supervisors; marks find the rest, as far as that keeps them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::MARK;
use super::pens::{kill_all_in, remove};
use super::tree::{Identity, kill_marked, signal_descendants};

/// How long it may take for killed processes to be gone.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// What may be left of an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Leftover {
    /// A variable in the environment of its processes.
    pub(crate) mark: String,
    /// The process that all of its processes descend from.
    pub(crate) supervisor: Option<Identity>,
    /// The cgroup that all of its processes are in.
    #[serde(default)]
    pub(crate) cgroup: Option<PathBuf>,
    /// The run of the machine in which it began.
    pub(crate) boot: String,
}

/// Ends the processes of some attempts: those in their cgroups, those below their supervisors, which
/// end by themselves once their daemon is gone, and those that have their marks. Blocks until they are
/// gone.
pub(crate) fn end_leftovers(left: &[Leftover]) {
    if left.is_empty() {
        return;
    }
    let marks: BTreeSet<&str> = left.iter().map(|left| left.mark.as_str()).collect();
    let supervisors = left.iter().filter_map(|left| left.supervisor);
    let mut supervisors: Vec<Identity> = supervisors.collect();
    let cgroups: BTreeSet<_> = left
        .iter()
        .filter_map(|left| left.cgroup.as_ref())
        .collect();
    let until = Instant::now() + GONE_MAX;
    loop {
        supervisors.retain(|supervisor| supervisor.lives());
        // While a supervisor lives, orphans come back to it.
        for supervisor in &supervisors {
            signal_descendants(supervisor.pid, Signal::KILL);
        }
        // Supervisors reap what ends below them, and end by themselves.
        let spared: Vec<i32> = supervisors.iter().map(|one| one.pid).collect();
        let killed = cgroups.iter().map(|cgroup| kill_all_in(cgroup, &spared));
        let killed: usize = killed.sum();
        let killed = killed + kill_marked(MARK, &marks);
        if killed == 0 && supervisors.is_empty() {
            for cgroup in cgroups {
                remove(cgroup);
            }
            return;
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for supervisor in supervisors {
        supervisor.kill();
    }
    tracing::error!("processes of actions may be left: they did not end in time");
}
