//! Ends the remaining processes of attempts whose daemon or supervisor is gone: those in their
//! cgroups, descendants of their supervisors, and any others with their mark in the environment.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::MARK;
use super::pens::{kill_all_in, remove};
use super::tree::{Identity, kill_marked, signal_descendants};

/// Timeout for killed processes to disappear.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(2);

/// How to find the remaining processes of an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Leftover {
    /// The value of [`MARK`](super::MARK) in its processes' environment.
    pub(crate) mark: String,
    /// The ancestor of all its processes.
    pub(crate) supervisor: Option<Identity>,
    /// The cgroup of all its processes.
    #[serde(default)]
    pub(crate) cgroup: Option<PathBuf>,
    /// Id of the machine's boot in which it began.
    pub(crate) boot: String,
}

/// Ends the processes of attempts: those in their cgroups, those below their supervisors, which end
/// by themselves when their daemon is gone, and those with their marks. Blocks until they are gone.
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
        // While a supervisor lives, it adopts orphans.
        for supervisor in &supervisors {
            signal_descendants(supervisor.pid, Signal::KILL);
        }
        // Supervisors reap their descendants, and end by themselves.
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
    tracing::error!("processes of actions did not end in time and may still be running");
}
