//! The guard of a supervisor without its own cgroup: a parent process that adopts and ends what a
//! killed supervisor leaves behind. It neither reads nor writes anything.

use std::io::{self, Write};
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};

use super::pool::CGROUP;
use super::tree::{own_pid, signal_descendants};

/// Runs this program again as the supervisor, and ends after the last process below it.
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
                    // A process started meanwhile also ends later, and is handled then.
                    signal_descendants(own_pid(), Signal::KILL);
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return ExitCode::SUCCESS,
        }
    }
}
