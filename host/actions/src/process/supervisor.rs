//! The supervisor: a process between the daemon and an action. All that the action starts stays
//! below it, whatever sessions and groups it makes, because orphans come back to the nearest
//! subreaper. It keeps the action's time and memory, and ends all of it when the daemon asks, or is
//! gone. It is a process of its own because a child can be bound before it begins only by code
//! that runs in the child, which would take `unsafe` in the daemon.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::order::{Order, Report};
use super::tree::{Identity, boot_id, memory_of_descendants, signal_descendants};

/// What a shell says where a program is not found.
const EXIT_NOT_FOUND: i32 = 127;
/// What a shell says where a program can't be executed.
const EXIT_NOT_EXECUTABLE: i32 = 126;
/// Between two looks at processes that are to be gone.
const KILL_LOOK: Duration = Duration::from_millis(5);
/// How long processes have to be gone once they are killed.
const KILL_MAX: Duration = Duration::from_secs(5);
/// Memory that an action takes in a second at most, as far as looking at it goes.
const GROWTH_BYTES_PER_S: f64 = 4e9;
/// Between two looks at the memory, at least and at most.
const MEMORY_LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// What one process may have beyond the bound of all of them: a stop for what grows between looks.
const MEMORY_SPARE: u64 = 1 << 30;

/// The program of a [`SupervisorCommand`](crate::SupervisorCommand): takes an order from standard
/// input, runs it with standard output as its output, and reports its end on standard error. Call it
/// first thing in a process that does nothing else: it waits for all children that there are.
pub fn supervisor_main() -> ExitCode {
    let report = supervise().unwrap_or_else(|cause| Report::Failed { cause });
    let written = serde_json::to_vec(&report).map(|json| io::stderr().write_all(&json));
    // A daemon that is gone reads no report.
    match written {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

enum Event {
    /// The daemon closed its end, or is gone.
    Stop,
    Gone(i32, WaitStatus),
    AllGone,
}

fn supervise() -> Result<Report, String> {
    let told = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    // A signal of a terminal is not meant for actions. It fails where it is so already.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| told("orphans can't be taken in", &error))?;
    let (order, stdin) =
        Order::receive(io::stdin()).map_err(|error| told("the order can't be read", &error))?;
    if !order.cwd.is_dir() {
        return Ok(refused(
            &format!("cwd: {} is no folder", order.cwd.display()),
            EXIT_NOT_FOUND,
        ));
    }
    let child = match start(&order, &stdin)? {
        Ok(child) => child,
        Err(report) => return Ok(report),
    };
    drop(stdin);
    record(&order.pids, child).map_err(|error| told("its number can't be written", &error))?;
    let events = listen().map_err(|error| told("no thread", &error))?;
    let mut watch = Watch::new(&order, child);
    while !watch.is_over {
        watch.step(&events);
    }
    Ok(watch.report())
}

/// The action's own fault, told as a shell would.
fn refused(text: &str, code: i32) -> Report {
    let mut output = io::stdout();
    let _ = writeln!(output, "treadle: {text}").and_then(|()| output.flush());
    Report::Exited { code }
}

/// Starts the action's process within its bounds; gives its number.
fn start(order: &Order, stdin: &[u8]) -> Result<Result<i32, Report>, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let input = file_of(stdin).map_err(failed("its standard input can't be made"))?;
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.map_err(failed("its output can't be connected"))?;
    let before = sched_getaffinity(None).ok();
    confine(order).map_err(failed("its bounds can't be set"))?;
    let spawned = Command::new(&order.command[0])
        .args(&order.command[1..])
        .env_clear()
        .envs(&order.env)
        .current_dir(&order.cwd)
        .process_group(0)
        .stdin(Stdio::from(input))
        .stderr(Stdio::from(output))
        .spawn();
    // The supervisor needs next to nothing, but must not wait for what it supervises.
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    if let Some(home) = &order.cgroup_home {
        enter(home).map_err(failed("the supervisor can't leave its action's cgroup"))?;
    }
    let child = match spawned {
        Ok(child) => child.id() as i32,
        Err(error) => return of_spawn(&order.command[0], &error).map(Err),
    };
    if let Some(max) = order.memory_bytes_max.filter(|_| order.cgroup.is_none()) {
        let max = Some(max.saturating_add(MEMORY_SPARE));
        let (current, maximum) = (max, max);
        let pid = rustix::process::Pid::from_raw(child);
        let _ = rustix::process::prlimit(pid, Resource::Data, Rlimit { current, maximum });
    }
    Ok(Ok(child))
}

/// A file with these bytes that no folder names.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Takes on what the child is to have.
fn confine(order: &Order) -> io::Result<()> {
    let (current, maximum) = (Some(0), Some(0));
    rustix::process::setrlimit(Resource::Core, Rlimit { current, maximum })?;
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

fn enter(cgroup: &Path) -> io::Result<()> {
    std::fs::write(cgroup.join("cgroup.procs"), "0")
}

/// Whose fault it is that a process did not begin.
fn of_spawn(program: &str, error: &io::Error) -> Result<Report, String> {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    match code {
        Some(Errno::NOENT) => {
            let text = format!("{program}: not found");
            Ok(refused(&text, EXIT_NOT_FOUND))
        }
        Some(
            Errno::ACCESS
            | Errno::PERM
            | Errno::NOEXEC
            | Errno::TOOBIG
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::LOOP
            | Errno::NAMETOOLONG,
        ) => Ok(refused(&format!("{program}: {error}"), EXIT_NOT_EXECUTABLE)),
        _ => Err(format!("no process can be started: {error}")),
    }
}

/// Writes which processes there are, for whoever looks after a crash.
fn record(path: &Path, child: i32) -> io::Result<()> {
    use std::fmt::Write as _;
    let mut text = boot_id() + "\n";
    for pid in [std::process::id() as i32, child] {
        // A child that has ended by now is to be reaped yet, and still there.
        if let Some(Identity { pid, start }) = Identity::of(pid) {
            let _ = writeln!(text, "{pid} {start}");
        }
    }
    std::fs::write(path, text)
}

/// Two threads wait for what happens: one reaps children, one notices that the daemon lets go.
fn listen() -> io::Result<Receiver<Event>> {
    let (sender, events) = mpsc::channel();
    let reaper: Sender<Event> = sender.clone();
    let thread = || std::thread::Builder::new().stack_size(64 << 10);
    thread().spawn(move || {
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let _ = reaper.send(Event::Gone(pid.as_raw_nonzero().get(), status));
                }
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let _ = reaper.send(Event::AllGone);
    })?;
    thread().spawn(move || {
        let mut byte = [0];
        while io::stdin().read(&mut byte).is_ok_and(|read| read > 0) {}
        let _ = sender.send(Event::Stop);
    })?;
    Ok(events)
}

/// Where it is between its beginning and the end of its last process.
enum Phase {
    Running,
    /// It was asked to end.
    Ending(Instant),
    /// It is killed until all of it is gone.
    Killing(Instant),
}

struct Watch<'o> {
    order: &'o Order,
    child: i32,
    phase: Phase,
    time_is_up: Option<Instant>,
    memory_look: Option<Instant>,
    /// Why it was ended before it ended itself.
    cause: Option<Report>,
    status: Option<WaitStatus>,
    is_over: bool,
}

impl<'o> Watch<'o> {
    fn new(order: &'o Order, child: i32) -> Self {
        let now = Instant::now();
        let memory = order.memory_bytes_max.filter(|_| order.cgroup.is_none());
        Self {
            order,
            child,
            phase: Phase::Running,
            time_is_up: order.run_ms_max.map(|ms| now + Duration::from_millis(ms)),
            memory_look: memory.map(|_| now + MEMORY_LOOK.0),
            cause: None,
            status: None,
            is_over: false,
        }
    }

    /// Waits for the next thing to happen, and does what follows from it.
    fn step(&mut self, events: &Receiver<Event>) {
        let now = Instant::now();
        let event = match self.wakes_at(now) {
            Some(at) => events.recv_timeout(at.saturating_duration_since(now)),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Gone(pid, status)) if pid == self.child => {
                self.status = Some(status);
                self.kill();
            }
            Ok(Event::Gone(..)) => {}
            Ok(Event::AllGone) | Err(RecvTimeoutError::Disconnected) => self.is_over = true,
            Ok(Event::Stop) => self.end(Report::Stopped),
            Err(RecvTimeoutError::Timeout) => self.look(Instant::now()),
        }
    }

    fn wakes_at(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.time_is_up.into_iter().chain(self.memory_look).min(),
            Phase::Ending(kill_at) => Some(kill_at),
            Phase::Killing(_) => Some(now + KILL_LOOK),
        }
    }

    fn look(&mut self, now: Instant) {
        match self.phase {
            Phase::Running if self.time_is_up.is_some_and(|at| at <= now) => {
                self.end(Report::TimedOut);
            }
            Phase::Running => self.look_at_memory(now),
            Phase::Ending(_) => self.kill(),
            Phase::Killing(give_up_at) if now >= give_up_at => {
                let cause = "its processes can't be ended; they may be left".to_owned();
                self.cause = Some(Report::Failed { cause });
                self.is_over = true;
            }
            Phase::Killing(_) => self.kill_all(),
        }
    }

    /// The next look comes before it can have gone far beyond its bound.
    fn look_at_memory(&mut self, now: Instant) {
        let Some(max) = self.order.memory_bytes_max else {
            return;
        };
        let page_bytes = rustix::param::page_size() as u64;
        let used = memory_of_descendants(std::process::id() as i32, page_bytes);
        if used > max {
            self.cause = Some(Report::OutOfMemory);
            self.kill();
            return;
        }
        let room = Duration::from_secs_f64((max - used) as f64 / GROWTH_BYTES_PER_S);
        self.memory_look = Some(now + room.clamp(MEMORY_LOOK.0, MEMORY_LOOK.1));
    }

    /// Asks all its processes to end.
    fn end(&mut self, cause: Report) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        self.cause = Some(cause);
        self.phase = Phase::Ending(Instant::now() + Duration::from_millis(self.order.grace_ms));
        signal_descendants(std::process::id() as i32, Signal::TERM);
        // One that is stopped would not notice.
        signal_descendants(std::process::id() as i32, Signal::CONT);
    }

    fn kill(&mut self) {
        if !matches!(self.phase, Phase::Killing(_)) {
            self.phase = Phase::Killing(Instant::now() + KILL_MAX);
        }
        self.kill_all();
    }

    fn kill_all(&self) {
        if let Some(cgroup) = &self.order.cgroup {
            // Kernels before 5.14 don't have it.
            let _ = std::fs::write(cgroup.join("cgroup.kill"), "1");
        }
        signal_descendants(std::process::id() as i32, Signal::KILL);
    }

    fn report(self) -> Report {
        if let Some(cause) = self.cause {
            return cause;
        }
        let status = self.status;
        let code = status.and_then(WaitStatus::exit_status);
        let signal = status.and_then(WaitStatus::terminating_signal);
        match (code, signal) {
            (Some(code), _) => Report::Exited { code },
            (None, Some(signal)) => Report::Killed { signal },
            (None, None) => Report::Failed {
                cause: "its end was not seen".to_owned(),
            },
        }
    }
}
