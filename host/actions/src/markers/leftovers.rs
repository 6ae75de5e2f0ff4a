//! Ends what is left of an attempt whose daemon or supervisor is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::{Identity, MARK, boot_id, kill_marked, signal_descendants};

/// How long it may take for killed processes to be gone.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Ends the processes of an attempt: those below its supervisor, which ends by itself then, and
/// those that have its mark in their environment. Blocks until they are gone. Gives whether there
/// were any.
pub(crate) fn end_leftovers(pids: &Path, mark: &str) -> bool {
    let recorded = std::fs::read_to_string(pids).unwrap_or_default();
    let mut lines = recorded.lines();
    // Numbers of processes mean something for as long as the machine runs.
    let is_this_run = lines.next() == Some(boot_id().as_str());
    let recorded = lines.filter(|_| is_this_run).filter_map(identity);
    let recorded: Vec<Identity> = recorded.collect();
    let mut were_there = recorded.iter().any(|process| process.lives());
    let until = Instant::now() + GONE_MAX;
    loop {
        if let Some(supervisor) = recorded.first().filter(|process| process.lives()) {
            signal_descendants(supervisor.pid, Signal::KILL);
        }
        let killed = kill_marked(MARK, mark);
        were_there |= killed > 0;
        let lives = recorded.iter().any(|process| process.lives());
        if killed == 0 && !lives {
            return were_there;
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for process in recorded {
        process.kill();
    }
    tracing::error!(pids = %pids.display(), "processes of an action can't be ended");
    were_there
}

fn identity(line: &str) -> Option<Identity> {
    let (pid, start) = line.split_once(' ')?;
    let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
    Some(Identity { pid, start })
}
