//! Processes of this machine, each below a supervisor. They are not isolated: they are the daemon's
//! user, see its files and its network.

mod cgroup;
mod cores;
mod order;
mod supervisor;
mod tree;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::capture::Capture;

pub(crate) use cgroup::{Cgroup, Cgroups};
pub(crate) use cores::{Cores, Taken};
pub(crate) use order::{Order, Report};
pub use supervisor::supervisor_main;
pub(crate) use tree::{Identity, boot_id, kill_marked, signal_descendants};

use order::REPORT_BYTES_MAX;

/// The variable that all processes of an attempt have in their environment.
pub(crate) const MARK: &str = "TREADLE_MARK";
/// How much longer than it may a supervisor takes before it counts as stuck.
const SUPERVISOR_SPARE: Duration = Duration::from_secs(15);
/// How long the output stays open once all that could write it is gone.
const OUTPUT_MAX: Duration = Duration::from_secs(1);

/// A program that calls [`supervisor_main`] and does nothing else. A daemon names itself and a
/// hidden subcommand.
#[derive(Clone, Debug)]
pub struct SupervisorCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// What makes it a supervisor.
    pub args: Vec<std::ffi::OsString>,
}

/// Why a run is to end before it does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// It is to go on.
    Not,
    /// Its client has no use for it any more.
    Cancelled,
    /// The daemon stops.
    Shutdown,
}

/// Resolves once a run is to end.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Stop>) {
    if stop.wait_for(|stop| *stop != Stop::Not).await.is_err() {
        // The sender is gone with the executor: so is the daemon.
    }
}

/// A supervisor that waits for its order.
pub(crate) struct Waiting(Child);

/// What a process run came to.
pub(crate) struct Ended {
    pub(crate) report: Report,
    pub(crate) output: Vec<u8>,
}

impl Waiting {
    /// Starts a supervisor.
    ///
    /// # Errors
    /// The system has no process for it, or no such program.
    pub(crate) fn start(command: &SupervisorCommand) -> io::Result<Self> {
        let child = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        child.map(Self).map_err(|error| {
            let program = command.program.display();
            io::Error::new(error.kind(), format!("no supervisor: {program}: {error}"))
        })
    }

    /// Has it run an order, and waits for the end.
    pub(crate) async fn run(
        mut self,
        order: &Order,
        stdin: &[u8],
        output_bytes_max: usize,
        mut stop: watch::Receiver<Stop>,
    ) -> Ended {
        let ends = (
            self.0.stdin.take(),
            self.0.stdout.take(),
            self.0.stderr.take(),
        );
        let (Some(mut control), Some(output), Some(report)) = ends else {
            return Ended::failed("its pipes are gone");
        };
        let message = match order.message(stdin) {
            Ok(message) => message,
            Err(error) => return Ended::failed(&error.to_string()),
        };
        let mut captured = Capture::new(output_bytes_max);
        let mut reported = Vec::new();
        // Dropping `control` tells the supervisor to end it.
        let conduct = async {
            let written = control.write_all(&message).await;
            drop(message);
            if written.is_err() {
                // Its report says why it has not read the order.
                return std::future::pending().await;
            }
            stopped(&mut stop).await;
            drop(control);
            std::future::pending::<()>().await;
        };
        let limit = order
            .run_ms_max
            .map(|ms| Duration::from_millis(ms.saturating_add(order.grace_ms)) + SUPERVISOR_SPARE);
        let mut report = report.take(REPORT_BYTES_MAX);
        let finish = async {
            let reading = async { report.read_to_end(&mut reported).await };
            let drained = drain(output, &mut captured);
            tokio::pin!(reading, drained);
            tokio::select! {
                _ = &mut reading => {
                    let _ = tokio::time::timeout(OUTPUT_MAX, &mut drained).await;
                }
                () = &mut drained => {
                    // What writes no output any more may still run.
                    let _ = reading.await;
                }
            }
        };
        let is_stuck = tokio::select! {
            () = conduct => false,
            is_stuck = within(limit, finish) => is_stuck,
        };
        if is_stuck {
            tracing::error!("a supervisor does not end its action in time; it is killed");
            let _ = self.0.start_kill();
        }
        let _ = self.0.wait().await;
        let report = serde_json::from_slice(&reported).unwrap_or_else(|_| Report::Failed {
            cause: "the supervisor of its processes was ended by another".to_owned(),
        });
        let output = captured.finish();
        Ended { report, output }
    }

    /// Lets go of one that is not needed.
    pub(crate) async fn dismiss(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait().await;
    }
}

impl Ended {
    pub(crate) fn failed(cause: &str) -> Self {
        let cause = cause.to_owned();
        Self {
            report: Report::Failed { cause },
            output: Vec::new(),
        }
    }
}

/// Whether the limit passed before the end.
async fn within(limit: Option<Duration>, end: impl Future<Output = ()>) -> bool {
    match limit {
        Some(limit) => tokio::time::timeout(limit, end).await.is_err(),
        None => {
            end.await;
            false
        }
    }
}

async fn drain(mut from: impl AsyncRead + Unpin, to: &mut Capture) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        to.take(&bytes[..read]);
    }
}

/// Variables of the daemon's own environment that actions get.
pub(crate) fn inherited(names: &[String]) -> BTreeMap<String, String> {
    let variables = names.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some((name.clone(), value))
    });
    variables.collect()
}
