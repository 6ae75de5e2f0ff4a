//! The daemon's side of supervisors: idle ones, and the execution of an order.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::leftovers::{Leftover, end_leftovers};
use super::messages::{
    FrameBytesMax, ProcessOrder, REPLY_BYTES_MAX, Reply, Report, Request, pack, receive,
};
use super::pens::{Pen, Pens};
use super::tree::Identity;
use super::{Stop, stopped};

/// Most idle supervisors; each uses about a megabyte.
const IDLE_MAX: usize = 64;
/// Time beyond its limit after which a supervisor counts as stuck.
const SPARE: Duration = Duration::from_secs(15);
/// Contains the supervisor's cgroup, or an instruction to start behind a guard.
pub(super) const CGROUP: &str = "TREADLE_SUPERVISOR_CGROUP";
/// Bytes of a mark in an output.
const MARK_BYTES_MAX: usize = 128;

/// A program that only calls [`supervisor_main`](crate::supervisor_main). A daemon uses itself with
/// a hidden subcommand.
#[derive(Clone, Debug)]
pub struct SupervisorCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments that start it as a supervisor.
    pub args: Vec<OsString>,
}

/// The idle supervisors.
#[derive(Debug)]
pub(crate) struct Supervisors {
    command: SupervisorCommand,
    /// The parent of their cgroups, if permitted.
    pens: Option<Pens>,
    /// `None` after closing.
    idle: Mutex<Option<Vec<Supervisor>>>,
}

/// An idle supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    identity: Identity,
    pen: Option<Pen>,
}

/// The result of a process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) report: Report,
    pub(crate) output: Vec<u8>,
}

impl Supervisors {
    pub(crate) fn new(command: SupervisorCommand, pens: Option<Pens>) -> Self {
        let idle = Mutex::new(Some(Vec::new()));
        Self {
            command,
            pens,
            idle,
        }
    }

    /// Starts supervisors in advance.
    pub(crate) async fn warm(&self, count: usize) {
        for _ in 0..count.min(IDLE_MAX) {
            match self.start().await {
                Ok(supervisor) => self.put(supervisor),
                // The attempt that needs one reports the error.
                Err(_) => return,
            }
        }
    }

    /// Takes an idle supervisor, or starts a new one.
    ///
    /// # Errors
    /// If the system can't start a process, or there is no such program.
    pub(crate) async fn take(&self) -> io::Result<Supervisor> {
        loop {
            let idle = self.lock().as_mut().and_then(Vec::pop);
            let Some(mut supervisor) = idle else {
                return self.start().await;
            };
            if matches!(supervisor.child.try_wait(), Ok(None)) {
                return Ok(supervisor);
            }
        }
    }

    /// Returns an unused supervisor.
    pub(crate) fn put(&self, supervisor: Supervisor) {
        // A dropped one ends by itself, and is reaped.
        if let Some(idle) = self.lock().as_mut()
            && idle.len() < IDLE_MAX
        {
            idle.push(supervisor);
        }
    }

    /// Ends all idle supervisors, and those returned later.
    pub(crate) async fn close(&self) {
        let idle = self.lock().take();
        for Supervisor {
            mut child, to, pen, ..
        } in idle.unwrap_or_default()
        {
            drop(to);
            let _ = child.wait().await;
            drop(pen);
        }
    }

    /// Runs an order on a supervisor, and waits for its end. `began` is called when the process has
    /// started.
    pub(crate) async fn run(
        &self,
        mut supervisor: Supervisor,
        order: &ProcessOrder,
        stdin: &[u8],
        left: Leftover,
        stop: watch::Receiver<Stop>,
        began: impl Future<Output = ()>,
    ) -> Ended {
        let spare = Duration::from_millis(order.grace_ms) + SPARE;
        let limit = order.run_ms_max.map(Duration::from_millis);
        let limit = limit.and_then(|limit| limit.checked_add(spare));
        let course = supervisor.conduct(order, stdin, stop, began);
        let ended = match limit {
            Some(limit) => tokio::time::timeout(limit, course).await,
            None => Ok(course.await),
        };
        let cause = match ended {
            Ok(Ok((ended, is_clean))) => {
                if is_clean {
                    self.put(supervisor);
                } else {
                    supervisor.end(left).await;
                }
                return ended;
            }
            Ok(Err(error)) => format!("its supervisor is gone: {error}"),
            Err(_) => "its supervisor did not end it in time".to_owned(),
        };
        supervisor.end(left).await;
        tracing::warn!(%cause, "the end of an action is unknown");
        let report = Report::Lost;
        let output = Vec::new();
        Ended { report, output }
    }

    /// Starts a supervisor on another thread, because loading an executable takes time.
    async fn start(&self) -> io::Result<Supervisor> {
        let (command, pens) = (self.command.clone(), self.pens.clone());
        let started =
            tokio::task::spawn_blocking(move || Supervisor::start(&command, pens.as_ref()));
        let started = started.await.map_err(io::Error::other)?;
        started.map_err(|error| {
            let program = self.command.program.display();
            io::Error::new(error.kind(), format!("no supervisor: {program}: {error}"))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Supervisor>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    fn start(command: &SupervisorCommand, pens: Option<&Pens>) -> io::Result<Self> {
        let pen = pens.map(Pens::make).transpose()?;
        let none = OsStr::new("");
        let cgroup = pen.as_ref().map_or(none, |pen| pen.folder().as_os_str());
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .env(CGROUP, cgroup)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let parts = (child.stdin.take(), child.stdout.take());
        match (parts, pid.and_then(Identity::of)) {
            ((Some(to), Some(from)), Some(identity)) => Ok(Self {
                child,
                to,
                from: BufReader::new(from),
                identity,
                pen,
            }),
            _ => Err(io::Error::other("it has no pipes")),
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The cgroup of everything that it starts.
    pub(crate) fn cgroup(&self) -> Option<PathBuf> {
        let folder = self.pen.as_ref().map(Pen::folder);
        folder.map(std::path::Path::to_owned)
    }

    /// Returns how the order ended, and whether another may follow.
    async fn conduct(
        &mut self,
        order: &ProcessOrder,
        stdin: &[u8],
        mut stop: watch::Receiver<Stop>,
        began: impl Future<Output = ()>,
    ) -> io::Result<(Ended, bool)> {
        let (to, from) = (&mut self.to, &mut self.from);
        let request = pack(&Request::Run(Box::new(order.clone())), stdin)?;
        let bytes_max = FrameBytesMax {
            json: REPLY_BYTES_MAX,
            tail: order.output_bytes_max.saturating_add(MARK_BYTES_MAX),
        };
        let telling = async {
            to.write_all(&request).await?;
            drop(request);
            stopped(&mut stop).await;
            to.write_all(&pack(&Request::Stop, &[])?).await
        };
        let hearing = async {
            let (mut reply, mut output) = receive(&mut *from, bytes_max).await?;
            if matches!(reply, Reply::Began) {
                began.await;
                (reply, output) = receive(&mut *from, bytes_max).await?;
            }
            let Reply::Ended { report, is_clean } = reply else {
                return Err(io::Error::other("it began twice"));
            };
            Ok((Ended { report, output }, is_clean))
        };
        tokio::pin!(telling, hearing);
        tokio::select! {
            ended = &mut hearing => ended,
            told = &mut telling => {
                told?;
                hearing.await
            }
        }
    }

    /// Ends what is left below an unusable supervisor, and then itself.
    async fn end(self, left: Leftover) {
        let Self {
            mut child,
            to,
            pen: _pen,
            ..
        } = self;
        drop(to);
        let ended = tokio::task::spawn_blocking(move || end_leftovers(&[left]));
        let _ = ended.await;
        let _ = child.wait().await;
    }
}
