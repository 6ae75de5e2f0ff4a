//! Processes of this machine, each below a supervisor. They are not isolated: they are the daemon's
//! user, see its files and its network.

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
pub(crate) use cores::{Cores, Taken};
pub(crate) use leftovers::{Leftover, end_leftovers};
pub(crate) use messages::{ProcessOrder, Report};
pub(crate) use pens::Pens;
pub use pool::SupervisorCommand;
pub(crate) use pool::{Ended, Supervisors};
pub use supervisor::supervisor_main;
pub(crate) use tree::{Identity, boot_id};

/// The variable that all processes of an attempt have in their environment.
pub(crate) const MARK: &str = "TREADLE_MARK";

/// Why a run is to end before it does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// It is to go on.
    Not,
    /// Its client has no use for it any more.
    Cancelled,
    /// The daemon stops.
    Shutdown,
}

/// Resolves once a run is to end.
pub(crate) async fn stopped(stop: &mut latest::Receiver<Stop>) {
    // Where the sender is gone, the executor is, and so is the daemon.
    let _ = stop.wait_for(|stop| *stop != Stop::Not).await;
}

/// Variables of the daemon's own environment that actions get.
pub(crate) fn inherited(names: &[String]) -> BTreeMap<String, String> {
    let variables = names.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some((name.clone(), value))
    });
    variables.collect()
}

/// A text that no other attempt has.
pub(crate) fn mark() -> String {
    use std::fmt::Write as _;
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        tracing::warn!("no random numbers; leftovers of an action may go unfound after a crash");
    }
    let mut text = String::with_capacity(32);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
