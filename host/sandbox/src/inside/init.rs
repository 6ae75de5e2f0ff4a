//! The first process inside: it enters the root, drops its rights, and runs commands until the
//! agent is gone. All other processes end with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, wait, waitid,
};

use super::{confine, root, setup};
use crate::channel;
use crate::files::UserIds;
use crate::wire::{Order, Reply};

/// How often a process tree is searched again if it grows although it was stopped.
const LOOKS_MAX: u32 = 50;

/// Running commands by the pid of their first process, and a condition for starts.
type Commands = Arc<(Mutex<BTreeMap<i32, u64>>, Condvar)>;

pub(super) fn run(socket: BorrowedFd<'_>) -> io::Result<()> {
    let setup = setup(socket)?;
    confine::name(&setup)?;
    root::enter(&setup)?;
    let mut keeper = confine::keeper()?;
    confine::leave_machine(&setup, &mut keeper)?;
    drop(keeper);
    confine::give_up(&setup)?;
    confine::forget_handlers()?;
    let here = rustix::fs::open(".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    channel::send(socket, &Reply::Ready, &[here.as_fd()])?;
    drop(here);
    let commands = Commands::default();
    let (reaper, told) = (commands.clone(), socket.try_clone_to_owned()?);
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    thread.spawn(move || reap(&reaper, told.as_fd()))?;
    while let Some((order, streams)) = channel::receive_long(socket)? {
        match order {
            Order::Spawn { .. } => spawn(&commands, socket, order, streams)?,
            Order::Signal { id, signal, tree } => signal_command(&commands, id, signal, tree),
        }
    }
    Ok(())
}

fn lock(commands: &Commands) -> MutexGuard<'_, BTreeMap<i32, u64>> {
    commands.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command. The lock is held until its pid is known, so that its end is never reported
/// before its start.
fn spawn(
    commands: &Commands,
    socket: BorrowedFd<'_>,
    order: Order,
    streams: Vec<OwnedFd>,
) -> io::Result<()> {
    let Order::Spawn {
        id,
        command,
        env,
        cwd,
        user,
    } = order
    else {
        return Ok(());
    };
    let mut known = lock(commands);
    let started = (|| {
        let [input, output, errors] = <[OwnedFd; 3]>::try_from(streams)
            .map_err(|_| io::Error::other("its streams are missing"))?;
        let (program, args) = command
            .split_first()
            .ok_or_else(|| io::Error::other("the command is empty"))?;
        let metadata = std::fs::metadata(&cwd)
            .map_err(|error| io::Error::other(format!("cwd: {cwd}: {error}")))?;
        if !metadata.is_dir() {
            return Err(io::Error::other(format!("cwd: {cwd} is not a folder")));
        }
        let mut process = Command::new(program);
        process
            .args(args)
            .env_clear()
            .envs(env)
            .current_dir(cwd)
            .process_group(0);
        process
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors));
        if user != UserIds::ROOT {
            process.gid(user.group).uid(user.user);
        }
        let child = process.spawn().map_err(|error| {
            let cause = match error.kind() {
                io::ErrorKind::NotFound => "not found".to_owned(),
                io::ErrorKind::ArgumentListTooLong => {
                    "its words and variables together exceed the kernel's limit; write them \
                     to a file, or send them as input"
                        .to_owned()
                }
                _ => error.to_string(),
            };
            io::Error::other(format!("{program}: {cause}"))
        })?;
        Ok(Pid::from_child(&child).as_raw_nonzero().get())
    })();
    match started {
        Ok(pid) => {
            known.insert(pid, id);
            commands.1.notify_all();
            channel::send(socket, &Reply::Spawned { id, pid }, &[])
        }
        Err(error) => {
            let mut cause = error.to_string();
            cause.truncate(cause.floor_char_boundary(1_024));
            channel::send(socket, &Reply::NotSpawned { id, cause }, &[])
        }
    }
}

/// Reaps all ended processes, whoever started them, and reports the ends of commands.
fn reap(commands: &Commands, socket: BorrowedFd<'_>) {
    loop {
        // Peeks first: a child whose exec failed must be reaped by the thread that started it.
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(Errno::CHILD) => {
                let known = lock(commands);
                let started = commands.1.wait_while(known, |known| known.is_empty());
                drop(started.unwrap_or_else(PoisonError::into_inner));
            }
            Err(_) | Ok(None) => {}
            Ok(Some(_)) => {
                let mut known = lock(commands);
                let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) else {
                    continue;
                };
                let Some(id) = known.remove(&pid.as_raw_nonzero().get()) else {
                    continue;
                };
                drop(known);
                let status = ExitStatus::from_raw(status.as_raw());
                let (code, signal) = (status.code(), status.signal());
                if channel::send(socket, &Reply::Ended { id, code, signal }, &[]).is_err() {
                    return;
                }
            }
        }
    }
}

fn signal_command(commands: &Commands, id: u64, signal: i32, tree: bool) {
    let Some(signal) = Signal::from_named_raw(signal) else {
        return;
    };
    let commands = lock(commands);
    let Some((pid, _)) = commands.iter().find(|(_, known)| **known == id) else {
        return;
    };
    let pid = *pid;
    if !tree {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, signal);
        }
        return;
    }
    // While the lock is held, nothing is reaped, so pids can't be reused.
    for _ in 0..LOOKS_MAX {
        let below = descendants(pid);
        for pid in below.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = kill_process(pid, Signal::STOP);
        }
        if descendants(pid).len() == below.len() {
            break;
        }
    }
    for pid in descendants(pid).into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process(pid, signal);
        let _ = kill_process(pid, Signal::CONT);
    }
}

/// A process, its descendants, and orphans in its process group.
fn descendants(first: i32) -> Vec<i32> {
    let all: Vec<_> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
            let parent = fields.next()?.parse().ok()?;
            let group = fields.next()?.parse().ok()?;
            Some((pid, parent, group))
        })
        .collect();
    let mut found = vec![first];
    let grouped = all
        .iter()
        .filter(|(pid, _, group): &&(i32, i32, i32)| *group == first && *pid != first);
    found.extend(grouped.map(|(pid, ..)| *pid));
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let below = all.iter().filter(|(_, above, _)| *above == parent);
        let below: Vec<i32> = below
            .map(|(pid, ..)| *pid)
            .filter(|pid| !found.contains(pid))
            .collect();
        found.extend(below);
        next += 1;
    }
    found
}
