//! The supervisor's loop between the start of an action and the end of its last process.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus};

use super::messages::{ProcessOrder, Report};
use super::pens::kill_all_in;
use super::tree::{memory_of_descendants, own_pid, signal_descendants};

/// Pause between two checks whether killed processes are gone.
const KILL_LOOK: Duration = Duration::from_millis(5);
/// Timeout for killed processes to disappear.
const KILL_MAX: Duration = Duration::from_secs(5);
/// Assumed maximum growth of an action's memory per second, which determines when it is checked.
const GROWTH_BYTES_PER_S: f64 = 4e9;
/// Minimum and maximum pause between two checks of the memory.
const MEMORY_LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// An event for a supervisor.
pub(super) enum Event {
    /// An order and its standard input.
    Run(Box<ProcessOrder>, Vec<u8>),
    /// A request to end the process.
    Stop,
    /// The daemon is gone.
    Closed,
    /// A child ended.
    Gone(Pid, WaitStatus),
    /// No children are left.
    AllGone,
}

enum Phase {
    Running,
    /// It was requested to end.
    Ending(Instant),
    /// It is being killed until no process is left.
    Killing(Instant),
    Over,
}

pub(super) struct Watch<'o> {
    order: &'o ProcessOrder,
    child: Pid,
    phase: Phase,
    time_is_up: Option<Instant>,
    memory_look: Option<Instant>,
    /// Why it was ended, if it did not end by itself.
    cause: Option<Report>,
    status: Option<WaitStatus>,
    /// Whether no process is left and the daemon still exists.
    is_clean: bool,
}

impl<'o> Watch<'o> {
    pub(super) fn new(order: &'o ProcessOrder, child: Pid) -> Self {
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
            is_clean: true,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Waits for the next event and handles it.
    pub(super) fn step(&mut self, events: &Receiver<Event>) {
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
            Ok(Event::AllGone) => self.phase = Phase::Over,
            Ok(Event::Stop) => self.end(Report::Stopped),
            Err(RecvTimeoutError::Timeout) => self.look(Instant::now()),
            // A daemon must not send another order meanwhile.
            Ok(Event::Closed | Event::Run(..)) | Err(RecvTimeoutError::Disconnected) => {
                self.is_clean = false;
                self.end(Report::Stopped);
            }
        }
    }

    fn wakes_at(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.time_is_up.into_iter().chain(self.memory_look).min(),
            Phase::Ending(kill_at) => Some(kill_at),
            Phase::Killing(_) | Phase::Over => Some(now + KILL_LOOK),
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
                let cause = "its processes could not be ended and may still be running".to_owned();
                self.cause = Some(Report::Failed(cause));
                self.is_clean = false;
                self.phase = Phase::Over;
            }
            Phase::Killing(_) => self.kill_all(),
            Phase::Over => {}
        }
    }

    /// Schedules the next check before the memory can have grown far beyond its limit.
    fn look_at_memory(&mut self, now: Instant) {
        let Some(max) = self.order.memory_bytes_max else {
            return;
        };
        let page_bytes = rustix::param::page_size() as u64;
        let used = memory_of_descendants(own_pid(), page_bytes);
        if used > max {
            self.cause = Some(Report::OutOfMemory);
            self.kill();
            return;
        }
        let room = Duration::from_secs_f64((max - used) as f64 / GROWTH_BYTES_PER_S);
        self.memory_look = Some(now + room.clamp(MEMORY_LOOK.0, MEMORY_LOOK.1));
    }

    /// Requests all its processes to end.
    fn end(&mut self, cause: Report) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let now = Instant::now();
        // The command may reach its own timeout at the same moment.
        let is_late = self.time_is_up.is_some_and(|at| at <= now);
        self.cause = Some(if is_late { Report::TimedOut } else { cause });
        self.phase = Phase::Ending(now + Duration::from_millis(self.order.grace_ms));
        signal_descendants(own_pid(), Signal::TERM);
        // A stopped process would not receive it.
        signal_descendants(own_pid(), Signal::CONT);
    }

    fn kill(&mut self) {
        if !matches!(self.phase, Phase::Killing(_)) {
            self.phase = Phase::Killing(Instant::now() + KILL_MAX);
        }
        self.kill_all();
    }

    fn kill_all(&self) {
        if let Some(cgroup) = &self.order.cgroup {
            kill_all_in(cgroup, &[]);
        }
        signal_descendants(own_pid(), Signal::KILL);
    }

    /// How it ended, and whether no process is left and the daemon still exists.
    pub(super) fn report(self) -> (Report, bool) {
        let status = self.status;
        let code = status.and_then(WaitStatus::exit_status);
        let signal = status.and_then(WaitStatus::terminating_signal);
        let report = match (self.cause, code, signal) {
            (Some(cause), ..) => cause,
            (None, Some(code), _) => Report::Exited(code),
            (None, None, Some(signal)) => Report::Killed(signal),
            (None, None, None) => Report::Lost,
        };
        (report, self.is_clean)
    }
}
