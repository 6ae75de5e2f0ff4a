//! What a supervisor does between the beginning of an action and the end of its last process.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus};

use super::messages::{ProcessOrder, Report};
use super::pens::kill_all_in;
use super::tree::{memory_of_descendants, own_pid, signal_descendants};

/// Between two looks at processes that are to be gone.
const KILL_LOOK: Duration = Duration::from_millis(5);
/// How long processes have to be gone once they are killed.
const KILL_MAX: Duration = Duration::from_secs(5);
/// Memory that an action takes in a second at most, as far as looking at it goes.
const GROWTH_BYTES_PER_S: f64 = 4e9;
/// Between two looks at the memory, at least and at most.
const MEMORY_LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Something that a supervisor hears of.
pub(super) enum Event {
    /// An order and its standard input.
    Run(Box<ProcessOrder>, Vec<u8>),
    /// The daemon wants no more of it.
    Stop,
    /// The daemon is gone.
    Closed,
    /// A child ended.
    Gone(Pid, WaitStatus),
    /// There are no children any more.
    AllGone,
}

enum Phase {
    Running,
    /// It was asked to end.
    Ending(Instant),
    /// It is killed until all of it is gone.
    Killing(Instant),
    Over,
}

pub(super) struct Watch<'o> {
    order: &'o ProcessOrder,
    child: Pid,
    phase: Phase,
    time_is_up: Option<Instant>,
    memory_look: Option<Instant>,
    /// Why it was ended before it ended itself.
    cause: Option<Report>,
    status: Option<WaitStatus>,
    /// Whether nothing is left, and the daemon is there.
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

    /// Waits for the next thing to happen, and does what follows from it.
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
            // A daemon that orders another one meanwhile is not one to listen to.
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
                let cause = "its processes can't be ended; they may be left".to_owned();
                self.cause = Some(Report::Failed(cause));
                self.is_clean = false;
                self.phase = Phase::Over;
            }
            Phase::Killing(_) => self.kill_all(),
            Phase::Over => {}
        }
    }

    /// The next look comes before it can have gone far beyond its bound.
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

    /// Asks all its processes to end.
    fn end(&mut self, cause: Report) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let now = Instant::now();
        // The command may time itself out at the same moment.
        let is_late = self.time_is_up.is_some_and(|at| at <= now);
        self.cause = Some(if is_late { Report::TimedOut } else { cause });
        self.phase = Phase::Ending(now + Duration::from_millis(self.order.grace_ms));
        signal_descendants(own_pid(), Signal::TERM);
        // One that is stopped would not notice.
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

    /// How it ended, and whether nothing is left and the daemon is there.
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
