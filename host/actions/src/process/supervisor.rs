//! The supervisor: a process between the daemon and an action. Everything that the action starts
//! stays below it, whatever sessions and groups it makes, because orphans are adopted by the
//! nearest subreaper. It enforces the action's limits on time and memory, and ends all its
//! processes when the daemon requests it or is gone. It is a separate process because limits can be
//! set on a child before it starts only by code that runs in the child, which would need `unsafe`
//! in the daemon. It runs one action after another, so that most actions do not wait for a
//! supervisor to start.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getpid, prlimit, set_child_subreaper};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::guard;
use super::messages::{ProcessOrder, REQUEST_BYTES_MAX, Reply, Report, Request, pack, unpack};
use super::pens::enter;
use super::pool::CGROUP;
use super::watch::{Event, Watch};
use crate::capture::Capture;

/// Memory that one process may use beyond the limit of all: a stop for growth between two checks.
const MEMORY_SPARE: u64 = 1 << 30;
/// How long the output is read after its last possible writer is gone.
const OUTPUT_MAX: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// The program of a [`SupervisorCommand`](crate::SupervisorCommand): reads orders from standard
/// input and writes replies to standard output, until the daemon is gone. Call it first in a
/// process that does nothing else, because it waits for all children.
pub fn supervisor_main() -> ExitCode {
    let cgroup = std::env::var_os(CGROUP);
    let has_none = |cgroup: &OsString| cgroup.is_empty() || enter(Path::new(cgroup)).is_err();
    if cgroup.as_ref().is_some_and(has_none) {
        return guard::run();
    }
    // Terminal signals are not meant for actions. Fails if it already leads a session.
    let _ = rustix::process::setsid();
    let (current, maximum) = (Some(0), Some(0));
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current, maximum });
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        let _ = writeln!(io::stderr(), "can't adopt orphans: {error}");
        return ExitCode::FAILURE;
    }
    let (sender, events) = mpsc::channel();
    let heard = sender.clone();
    if thread(move || hear(&heard)).is_err() {
        return ExitCode::FAILURE;
    }
    while let Ok(event) = events.recv() {
        match event {
            Event::Run(order, stdin) => {
                if !run(&order, &stdin, &sender, &events) {
                    break;
                }
            }
            Event::Closed => break,
            // Arrived too late.
            Event::Stop | Event::Gone(..) | Event::AllGone => {}
        }
    }
    ExitCode::SUCCESS
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    thread.spawn(work).map(drop)
}

/// Reads the daemon's requests, until it is gone.
fn hear(sender: &Sender<Event>) {
    let mut from = io::stdin().lock();
    while let Ok((request, stdin)) = unpack(&mut from, REQUEST_BYTES_MAX) {
        let event = match request {
            Request::Run(order) => Event::Run(order, stdin),
            Request::Stop => Event::Stop,
        };
        if sender.send(event).is_err() {
            return;
        }
    }
    let _ = sender.send(Event::Closed);
}

/// Runs an order to its end. Returns whether another one may follow.
fn run(
    order: &ProcessOrder,
    stdin: &[u8],
    sender: &Sender<Event>,
    events: &Receiver<Event>,
) -> bool {
    let (child, output) = match start(order, stdin) {
        Ok(started) => started,
        Err((cause, is_clean)) => return tell_end(Report::Failed(cause), is_clean, &[]),
    };
    let capture = Arc::new(Mutex::new(Capture::new(order.output_bytes_max)));
    let (drained, is_drained) = mpsc::channel();
    let (to, reaper) = (capture.clone(), sender.clone());
    let threads = thread(move || {
        drain(output, &to);
        let _ = drained.send(());
    })
    .and_then(|()| thread(move || reap(&reaper)));
    if let Err(error) = threads {
        // The daemon ends the processes when this one is gone.
        return tell_end(Report::Failed(format!("no thread: {error}")), false, &[]);
    }
    tell(&Reply::Began, &[]);
    let mut watch = Watch::new(order, child);
    while !watch.is_over() {
        watch.step(events);
    }
    let is_drained = is_drained.recv_timeout(OUTPUT_MAX).is_ok();
    let taken = std::mem::replace(
        &mut *capture.lock().unwrap_or_else(PoisonError::into_inner),
        Capture::new(0),
    );
    let (report, is_clean) = watch.report();
    tell_end(report, is_clean && is_drained, &taken.finish())
}

/// Sends the end. Returns whether another order may follow.
fn tell_end(report: Report, is_clean: bool, output: &[u8]) -> bool {
    tell(&Reply::Ended { report, is_clean }, output) && is_clean
}

/// Sends a reply. Returns whether the daemon received it.
fn tell(reply: &Reply, output: &[u8]) -> bool {
    let told = pack(reply, output).and_then(|frame| {
        let mut to = io::stdout().lock();
        to.write_all(&frame)?;
        to.flush()
    });
    told.is_ok()
}

fn drain(mut from: PipeReader, to: &Mutex<Capture>) {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => {
                let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
                to.take(&bytes[..read]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Reaps children until there are none.
fn reap(sender: &Sender<Event>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let _ = sender.send(Event::Gone(pid, status));
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    let _ = sender.send(Event::AllGone);
}

/// Starts the action's process with its limits; returns its pid and its output, or the cause and
/// whether no process is left.
fn start(order: &ProcessOrder, stdin: &[u8]) -> Result<(Pid, PipeReader), (String, bool)> {
    let told = |what: &'static str| move |error: io::Error| (format!("{what}: {error}"), true);
    if !order.cwd.is_dir() {
        let cause = format!("cwd: {} is not a folder", order.cwd.display());
        return Err((cause, true));
    }
    let input = file_of(stdin).map_err(told("can't make its standard input"))?;
    let output = io::pipe().and_then(|(reader, writer)| {
        let second = writer.try_clone()?;
        Ok((reader, writer, second))
    });
    let (reader, out, err) = output.map_err(told("can't connect its output"))?;
    let before = sched_getaffinity(None).ok();
    confine(order).map_err(told("can't set its limits"))?;
    let spawned = Command::new(&order.command[0])
        .args(&order.command[1..])
        .env_clear()
        .envs(&order.env)
        .current_dir(&order.cwd)
        .process_group(0)
        .stdin(Stdio::from(input))
        .stdout(out)
        .stderr(err)
        .spawn();
    // The supervisor needs few resources, but must not be slowed by what it supervises.
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    if let Some(home) = &order.cgroup_home {
        let left = enter(home);
        left.map_err(|error| (format!("can't leave the action's cgroup: {error}"), false))?;
    }
    let child = spawned.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => (format!("{}: not found", order.command[0]), true),
        _ => (format!("{}: {error}", order.command[0]), true),
    })?;
    let child = Pid::from_child(&child);
    if let Some(max) = order.memory_bytes_max.filter(|_| order.cgroup.is_none()) {
        let max = Some(max.saturating_add(MEMORY_SPARE));
        let (current, maximum) = (max, max);
        let _ = prlimit(Some(child), Resource::Data, Rlimit { current, maximum });
    }
    Ok((child, reader))
}

/// An unnamed file with these bytes.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Sets the limits that the child inherits.
fn confine(order: &ProcessOrder) -> io::Result<()> {
    if let Some(cgroup) = &order.cgroup {
        enter(cgroup)?;
    }
    if !order.cores.is_empty() {
        let mut set = CpuSet::new();
        for core in &order.cores {
            set.set(*core as usize);
        }
        sched_setaffinity(None, &set)?;
    }
    Ok(())
}
