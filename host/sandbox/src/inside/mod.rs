//! The processes of a sandbox: the keeper, which makes the namespaces, and the first process
//! inside, which enters the root, drops its rights and runs commands. Both are this program,
//! executed again: code that a child runs before it executes another program would otherwise
//! require `unsafe`.

mod confine;
mod init;
mod root;
mod seccomp;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, unshare};

use crate::channel;
use crate::wire::{Guard, Reply, Setup};

/// User ids of a sandbox: as many as on a machine.
pub(crate) const IDS: u32 = 65_536;
/// Argument that starts the first process of a sandbox.
const FIRST: &str = "first";

/// The program of a [`SandboxConfig::program`](crate::SandboxConfig): keeps a sandbox whose socket
/// is its standard input. Call it first, with the arguments after the configured ones, in a process
/// that does nothing else.
pub fn sandbox_main(args: &[OsString]) -> ExitCode {
    let socket = io::stdin();
    let done = match args {
        [first, _] if first == FIRST => init::run(socket.as_fd()),
        [uid, without, joined @ ..] => keep(uid, &text(without), joined),
        _ => Err(io::Error::other("it is run by treadle only")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = error.to_string();
            let _ = channel::send(socket.as_fd(), &Reply::Failed { cause }, &[]);
            ExitCode::FAILURE
        }
    }
}

fn text(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

/// The keeper: enters the cgroups, makes the namespaces, and maps root inside to an unprivileged
/// user.
fn keep(uid: &OsString, without: &str, joined: &[OsString]) -> io::Result<()> {
    close_inherited()?;
    for procs in joined {
        std::fs::write(procs, "0").map_err(|error| told(&text(procs), &error))?;
    }
    // If the machine runs out of memory, sandboxes are killed first, whatever the agent's own
    // score.
    std::fs::write("/proc/self/oom_score_adj", "500")?;
    let without: Vec<Guard> = serde_json::from_str(without)?;
    // Mounts are private to the first process: the keeper stays in the machine's namespace.
    let mut flags = CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    let spaces = [
        (Guard::PidNamespace, CloneFlags::CLONE_NEWPID),
        (Guard::NetNamespace, CloneFlags::CLONE_NEWNET),
    ];
    for (guard, space) in spaces {
        if !without.contains(&guard) {
            flags |= space;
        }
    }
    unshare(flags).map_err(|error| told("namespaces", &error.into()))?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut first = Command::new("/proc/self/exe")
        .args(std::env::args_os().take_while(|arg| arg != uid).skip(1))
        .arg(FIRST)
        .arg(uid)
        .env_clear()
        .stdin(Stdio::inherit())
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let mut asked = [0];
    // It sends nothing if it keeps the machine's ids, or has failed and reported why.
    if ours.read(&mut asked)? == 1 {
        let map = format!("0 {} {IDS}", text(uid));
        for file in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{file}", first.id());
            std::fs::write(path, &map).map_err(|error| told(file, &error))?;
        }
        ours.write_all(&asked)?;
    }
    first.wait()?;
    Ok(())
}

/// Closes descriptors that the agent inherited, which commands would inherit otherwise.
fn close_inherited() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in open.into_iter().filter(|number| *number > 2) {
        // One of them was the directory listing itself.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

fn told(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Receives the setup, which the agent sends first.
fn setup(socket: impl AsFd) -> io::Result<Setup> {
    let received = channel::receive_long(socket.as_fd())?;
    let (setup, _) = received.ok_or_else(|| io::Error::other("the agent is gone"))?;
    Ok(setup)
}
