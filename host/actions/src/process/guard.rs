//! What stands before a supervisor that has no cgroup of its own: a process that takes in what a
//! supervisor leaves that was killed, and ends it. It reads nothing and tells nothing.

use std::io::{self, Write};
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};

use super::pool::CGROUP;
use super::tree::{own_pid, signal_descendants};

/// Starts this program again as the supervisor, and ends after the last process below it.
pub(super) fn run() -> ExitCode {
    let _ = rustix::process::setsid();
    let supervisor = set_child_subreaper(Some(getpid()))
        .map_err(io::Error::from)
        .and_then(|()| {
            let mut again = Command::new("/proc/self/exe");
            again.args(std::env::args_os().skip(1)).env_remove(CGROUP);
            again.spawn()
        });
    let supervisor = match supervisor {
        Ok(supervisor) => Pid::from_child(&supervisor),
        Err(error) => {
            let _ = writeln!(io::stderr(), "no supervisor: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut is_alone = false;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) => {
                is_alone |= pid == supervisor;
                if is_alone {
                    // Whatever starts another one meanwhile ends too, and is looked at again then.
                    signal_descendants(own_pid(), Signal::KILL);
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return ExitCode::SUCCESS,
        }
    }
}
