//! Processes on this machine, each below a supervisor. They are not isolated: they run as the
//! daemon's user, with its files and its network.

mod cgroup;
mod cores;
mod guard;
mod leftovers;
mod messages;
mod pens;
mod pool;
mod supervisor;
mod tree;
mod watch;

use std::collections::BTreeMap;

use tokio::sync::watch as latest;

pub(crate) use cgroup::{Cgroup, Cgroups};
pub(crate) use cores::{CoreLease, Cores};
pub(crate) use leftovers::{Leftover, end_leftovers};
pub(crate) use messages::{ProcessOrder, Report};
pub(crate) use pens::Pens;
pub use pool::SupervisorCommand;
pub(crate) use pool::{Ended, Supervisors};
pub use supervisor::supervisor_main;
pub(crate) use tree::{Identity, boot_id};

/// The environment variable that marks all processes of an attempt.
pub(crate) const MARK: &str = "TREADLE_MARK";

/// Why a run is stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// It is not stopped.
    Not,
    /// Its client cancelled it.
    Cancelled,
    /// The daemon is stopping.
    Shutdown,
}

/// Resolves when a run is stopped.
pub(crate) async fn stopped(stop: &mut latest::Receiver<Stop>) {
    // If the sender is gone, the executor and the daemon are ending.
    let _ = stop.wait_for(|stop| *stop != Stop::Not).await;
}

/// The daemon's environment variables that actions inherit.
pub(crate) fn inherited(names: &[String]) -> BTreeMap<String, String> {
    let variables = names.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some((name.clone(), value))
    });
    variables.collect()
}

/// A unique mark of an attempt.
pub(crate) fn mark() -> String {
    use std::fmt::Write as _;
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        tracing::warn!(
            "no random numbers; remaining processes of an action may not be found after a crash"
        );
    }
    let mut text = String::with_capacity(32);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
