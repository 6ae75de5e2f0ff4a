//! Attempts in sandboxes: commands that the executor runs, and work that a handler of the daemon
//! does with the resources of its action.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use treadle_core::actions::Outcome;
use treadle_model::ActionId;
use treadle_sandbox::{End, Event, Exec, Input, Sandbox, SandboxError, Share};

use super::Executor;
use super::attempt::{Attempt, failed};
use crate::body::{HandlerWork, SandboxCommand};
use crate::capture::Capture;
use crate::process::{CoreLease, Stop, stopped};

/// How long a handler has to end its work when asked.
const HANDLER_MAX: Duration = Duration::from_secs(10);
/// `SIGXFSZ`: a file exceeded the size limit.
const FILE_SIZE: i32 = 25;
/// Name of the resource for cores.
const CPU: &str = "cpu";

/// The resources granted to a handler. The action ends when this is ended or dropped.
#[derive(Debug)]
pub struct Hold {
    /// The action.
    pub action: ActionId,
    /// Its cores.
    pub share: Share,
    /// Number of cores that it may use at once.
    pub parallelism: u64,
    end: oneshot::Sender<(Outcome, Vec<u8>)>,
    stop: watch::Receiver<Stop>,
}

impl Hold {
    /// Waits for a request to end.
    pub async fn stopped(&mut self) {
        stopped(&mut self.stop).await;
    }

    /// Ends the action, with its output.
    pub fn end(self, outcome: Outcome, output: Vec<u8>) {
        let _ = self.end.send((outcome, output));
    }
}

/// A handler that waits for its action's resources. Dropping this removes it.
pub struct Expected {
    executor: Executor,
    token: String,
    granted: oneshot::Receiver<Hold>,
}

impl Expected {
    /// Waits for the action's resources, possibly forever.
    pub async fn granted(&mut self) -> Hold {
        match (&mut self.granted).await {
            Ok(hold) => hold,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.executor.0.lock().expected.remove(&self.token);
    }
}

impl Executor {
    /// Registers a handler for an action's work, before the action is submitted.
    pub fn expect(&self, token: &str) -> Expected {
        let (grant, granted) = oneshot::channel();
        self.0.lock().expected.insert(token.to_owned(), grant);
        Expected {
            executor: self.clone(),
            token: token.to_owned(),
            granted,
        }
    }
}

impl Attempt {
    /// Runs a command in a sandbox of its tenant.
    pub(super) async fn sandboxed(mut self, command: &SandboxCommand) -> (Outcome, Vec<u8>) {
        let sandbox = match self.sandbox(&command.id) {
            Ok(sandbox) => sandbox,
            Err(cause) => return (failed(cause), Vec::new()),
        };
        if let Err(outcome) = self.begin().await {
            return (outcome, Vec::new());
        }
        let taken = self.cores();
        let exec = Exec {
            command: command.command.clone(),
            env: self.variables(&command.env),
            cwd: command.cwd.clone().unwrap_or_default(),
            input: Input::Bytes(command.stdin.clone().into_bytes()),
            merged: true,
            share: Share::Cores(taken.cores().to_vec()),
            ..Exec::default()
        };
        let limit = Duration::from_micros(self.order.run_max.micros());
        let started = tokio::select! {
            started = tokio::time::timeout(limit, sandbox.run(exec)) => started,
            () = stopped(&mut self.stop) => return (self.why_stopped(), Vec::new()),
        };
        let mut running = match started {
            Ok(Ok(running)) => running,
            // The command may have begun.
            Ok(Err(SandboxError::Gone)) => return (Outcome::Unknown, Vec::new()),
            Ok(Err(error)) => return (failed(error.to_string()), Vec::new()),
            Err(_) => return (Outcome::TimedOut, Vec::new()),
        };
        let mut capture = Capture::new(self.parts.config.output_bytes_max);
        let stopper = running.stopper();
        let take = |event: &Event| {
            if let Event::Output(bytes) = event {
                capture.take(bytes);
            }
        };
        let mut follow = Box::pin(running.follow(limit, take));
        let outcome = tokio::select! {
            (end, is_late) = &mut follow => outcome(end, is_late),
            () = stopped(&mut self.stop) => {
                let _ = stopper.kill().await;
                let _ = tokio::time::timeout(HANDLER_MAX, &mut follow).await;
                self.why_stopped()
            }
        };
        drop(follow);
        (outcome, capture.finish())
    }

    fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, String> {
        let sandboxes = self.parts.config.sandboxes.as_ref();
        let sandboxes = sandboxes.ok_or("this daemon has no sandboxes")?;
        let sandbox = sandboxes.get(id).map_err(|error| error.to_string())?;
        if sandbox.status().spec.tenant != self.order.tenant {
            return Err(SandboxError::Unknown(id.to_owned()).to_string());
        }
        Ok(sandbox)
    }

    fn cores(&self) -> CoreLease {
        let cores = self.granted(CPU).unwrap_or(0);
        self.parts
            .cores
            .take(usize::try_from(cores).unwrap_or(usize::MAX))
    }

    fn variables(&self, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = given.clone();
        let cores = self.granted(CPU).unwrap_or(1);
        for (name, value) in [
            ("TREADLE_ACTION_ID", self.id.action.0.to_string()),
            ("TREADLE_ATTEMPT", self.id.attempt.to_string()),
            ("TREADLE_JOB", self.order.job.clone()),
            ("TREADLE_PARALLELISM", cores.to_string()),
        ] {
            env.insert(name.to_owned(), value);
        }
        env
    }

    /// Passes the resources to the waiting handler, and waits until its work is done.
    pub(super) async fn held(mut self, work: &HandlerWork) -> (Outcome, Vec<u8>) {
        let expected = self.parts.lock().expected.remove(&work.token);
        let Some(handler) = expected else {
            return (failed("the requesting client is gone"), Vec::new());
        };
        if let Err(outcome) = self.begin().await {
            return (outcome, Vec::new());
        }
        let taken = self.cores();
        let (end, mut ended) = oneshot::channel();
        let hold = Hold {
            action: self.id.action,
            share: Share::Cores(taken.cores().to_vec()),
            parallelism: self.granted(CPU).unwrap_or(1),
            end,
            stop: self.stop.clone(),
        };
        if handler.send(hold).is_err() {
            return (failed("the requesting client is gone"), Vec::new());
        }
        let lost = || (failed("its handler is gone"), Vec::new());
        tokio::select! {
            ended = &mut ended => ended.unwrap_or_else(|_| lost()),
            () = stopped(&mut self.stop) => {
                let ended = tokio::time::timeout(HANDLER_MAX, ended).await;
                let output = ended.ok().and_then(Result::ok).unwrap_or_else(lost).1;
                (self.why_stopped(), output)
            }
        }
    }
}

/// The outcome by the end of a command.
pub fn outcome(end: End, is_late: bool) -> Outcome {
    match end {
        _ if is_late => Outcome::TimedOut,
        End::Exited(code) => Outcome::Exited { code },
        End::Killed(signal) => Outcome::Killed { signal },
        End::OutOfMemory => Outcome::OutOfMemory,
        End::OutOfDisk => Outcome::Killed { signal: FILE_SIZE },
        // It may have run partly or completely.
        End::Gone => Outcome::Unknown,
    }
}
