//! A command in a sandbox as an action: it waits for its cores, and its end and output are
//! recorded.

use super::{Host, refused};
use crate::actions::Failure;
use crate::held_action::HeldAction;
use std::sync::Arc;
use std::time::Duration;
use treadle_actions::{Capture, Hold, outcome};
use treadle_core::actions::Outcome;
use treadle_model::Tenant;
use treadle_sandbox::{End, Event, Exec, Running, Sandbox, Stopper};
use treadle_wire::{ErrorBody, ErrorCode};

/// The cause of a command's end if neither it nor its client ended it.
pub const WITHDRAWN: &str = "the action was cancelled, or treadle is shutting down";
/// Most bytes of a command's output that are recorded.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Longest run time of a command.
const RUN_MAX: Duration = Duration::from_hours(24);
/// How long a killed command may take to end, if its sandbox is not paused.
const END_MAX: Duration = Duration::from_secs(5);
/// Most bytes of a command in its description.
const WHAT_BYTES_MAX: usize = 512;

/// A command for a sandbox.
#[derive(Clone, Debug)]
pub struct Task {
    /// The tool.
    pub kind: &'static str,
    /// Its description for display.
    pub what: String,
    /// Its time limit.
    pub run_max: Option<Duration>,
}

/// A running command and its action. Dropping this ends the command.
pub struct Work {
    hold: Option<Hold>,
    running: Option<Running>,
    capture: Capture,
    is_late: bool,
    is_withdrawn: bool,
    until: Option<tokio::time::Instant>,
}

impl Host {
    /// Waits for a task's permit to run.
    pub async fn hold(&self, sandbox: &Arc<Sandbox>, task: &Task) -> Result<Hold, Failure> {
        let spec = sandbox.status().spec;
        let mut what = task.what.clone();
        what.truncate(what.floor_char_boundary(WHAT_BYTES_MAX));
        let action = HeldAction {
            program: spec.program,
            job: spec.job,
            kind: task.kind.to_owned(),
            sandbox: sandbox.id().to_owned(),
            what,
            run_max: task.run_max.unwrap_or(RUN_MAX),
        };
        self.turns.hold(&Tenant::new(&spec.tenant), action).await
    }

    /// Waits for a command's permit, and starts it.
    pub async fn run(
        &self,
        sandbox: &Arc<Sandbox>,
        task: Task,
        mut exec: Exec,
    ) -> Result<Work, Failure> {
        let mut hold = self.hold(sandbox, &task).await?;
        exec.share = hold.share.clone();
        let parallelism = hold.parallelism.to_string();
        exec.env
            .insert("TREADLE_PARALLELISM".to_owned(), parallelism);
        let started = tokio::select! {
            started = sandbox.run(exec) => started.map_err(|error| refused(&error)),
            () = hold.stopped() => Err(ErrorBody::new(ErrorCode::SandboxFailed, WITHDRAWN)),
        };
        match started {
            Ok(running) => Ok(Work {
                hold: Some(hold),
                running: Some(running),
                capture: Capture::new(OUTPUT_BYTES_MAX),
                is_late: false,
                is_withdrawn: false,
                until: task.run_max.map(|max| tokio::time::Instant::now() + max),
            }),
            Err(error) => {
                let cause = error.message.as_str().into();
                hold.end(Outcome::InfrastructureFailure { cause }, Vec::new());
                Err(error.into())
            }
        }
    }
}

impl Work {
    /// The command.
    pub fn running(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// Sets another deadline than `run_max` after its start.
    pub(crate) fn end_at(&mut self, until: tokio::time::Instant) {
        self.until = Some(until);
    }

    /// Whether it was ended at its deadline.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// Whether it was ended because its action was cancelled or the daemon shuts down.
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    /// Its next event; after its end, always the end. Ends it at its deadline or when its action is
    /// cancelled.
    pub async fn next(&mut self) -> Event {
        loop {
            let (Some(running), Some(hold)) = (&mut self.running, &mut self.hold) else {
                return Event::Ended(End::Gone);
            };
            let stopper = running.stopper();
            let until = self.until;
            tokio::select! {
                event = running.next() => {
                    match &event {
                        Event::Output(bytes) | Event::Errors(bytes) => self.capture.take(bytes),
                        Event::Ended(end) => self.finish(*end),
                    }
                    return event;
                }
                () = sleep_until(until), if until.is_some() => {
                    if self.is_late || self.is_withdrawn {
                        // Its sandbox is paused: it ends once that is resumed, and holds no cores
                        // until then.
                        self.finish(End::Gone);
                        return Event::Ended(End::Gone);
                    }
                    self.is_late = true;
                    self.end_soon(stopper);
                }
                () = hold.stopped(), if !self.is_late && !self.is_withdrawn => {
                    self.is_withdrawn = true;
                    self.end_soon(stopper);
                }
            }
        }
    }

    /// Follows it to its end. Returns its standard output and standard error, at most `bytes_max`
    /// bytes each, and how it ended.
    pub async fn follow(&mut self, bytes_max: usize) -> (Vec<u8>, Vec<u8>, End) {
        let (mut output, mut errors) = (Capture::new(bytes_max), Capture::new(bytes_max));
        loop {
            match self.next().await {
                Event::Output(bytes) => output.take(&bytes),
                Event::Errors(bytes) => errors.take(&bytes),
                Event::Ended(end) => return (output.finish(), errors.finish(), end),
            }
        }
    }

    fn end_soon(&mut self, stopper: Stopper) {
        self.until = Some(tokio::time::Instant::now() + END_MAX);
        tokio::spawn(async move { stopper.kill().await });
    }

    fn finish(&mut self, end: End) {
        self.running = None;
        if let Some(hold) = self.hold.take() {
            let written = std::mem::replace(&mut self.capture, Capture::new(0));
            hold.end(outcome(end, self.is_late), written.finish());
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            let stopper = running.stopper();
            tokio::spawn(async move { stopper.kill().await });
        }
    }
}

async fn sleep_until(until: Option<tokio::time::Instant>) {
    if let Some(until) = until {
        tokio::time::sleep_until(until).await;
    }
}
