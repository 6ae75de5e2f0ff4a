//! A command in a sandbox.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::channel;
use crate::error::SandboxError;
use crate::live::{Ended, Live};
use crate::sandbox::Grant;
use crate::wire::Order;

/// `SIGKILL`.
const KILL: i32 = 9;

/// What to run, and with what.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// Variables in addition to those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Where it runs; root's home if empty.
    pub cwd: String,
    /// User and group inside; root's if it is none.
    pub user: Option<(u32, u32)>,
    /// What it reads.
    pub input: Input,
    /// Whether what it tells of errors goes the way of its output.
    pub merged: bool,
    /// What of the processors it has.
    pub share: Share,
}

impl Exec {
    /// A command and nothing else.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self {
            command,
            ..Self::default()
        }
    }
}

/// What of the processors a command has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Share {
    /// One core, whichever that is.
    #[default]
    Core,
    /// These cores.
    Cores(Vec<u32>),
    /// What others of its sandbox have, and a little where none runs.
    Background,
}

/// What a command reads.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// Nothing.
    #[default]
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// What is written to it while it runs.
    Piped,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// With a code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// By the kernel, as the sandbox had no memory left.
    OutOfMemory,
    /// By treadle, as the sandbox wrote more to disk than it may.
    OutOfDisk,
    /// With the sandbox.
    Gone,
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    /// The number of its process inside.
    pub pid: i32,
    /// Its output.
    pub stdout: pipe::Receiver,
    /// What it tells of errors; absent if that is in its output.
    pub stderr: Option<pipe::Receiver>,
    /// What it reads, if that is piped.
    pub stdin: Option<pipe::Sender>,
    ended: oneshot::Receiver<Ended>,
    stopper: Stopper,
    grant: Grant,
}

/// Ends a command from elsewhere.
#[derive(Clone, Debug)]
pub struct Stopper {
    live: Arc<Live>,
    id: u64,
}

impl Stopper {
    /// Sends a signal to the command's first process.
    ///
    /// # Errors
    /// The sandbox is gone.
    pub async fn signal(&self, signal: i32) -> io::Result<()> {
        self.live.signal(self.id, signal, false).await
    }

    /// Ends the command and all that descends from it.
    ///
    /// # Errors
    /// The sandbox is gone.
    pub async fn kill(&self) -> io::Result<()> {
        self.live.signal(self.id, KILL, true).await
    }
}

impl Running {
    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for its end, and gives its cores back. What it left in the background may hold its
    /// output open.
    pub async fn wait(&mut self) -> End {
        let end = match (&mut self.ended).await {
            Err(_) => End::Gone,
            Ok((Some(code), _)) => End::Exited(code),
            Ok((None, signal)) => End::Killed(signal.unwrap_or(KILL)),
        };
        self.grant.end(end)
    }

    /// As [`Running::wait`], and ends it after so long. Gives whether it was ended.
    pub async fn wait_at_most(&mut self, max: Duration) -> (End, bool) {
        if let Ok(end) = tokio::time::timeout(max, self.wait()).await {
            return (end, false);
        }
        let _ = self.stopper.kill().await;
        (self.wait().await, true)
    }
}

/// The ends of pipes that stay here, and those that go inside.
type Streams = (
    pipe::Receiver,
    Option<pipe::Receiver>,
    Option<pipe::Sender>,
    [OwnedFd; 3],
);

fn streams(input: &Input, merged: bool) -> io::Result<Streams> {
    let (stdout, out) = io::pipe()?;
    let (stderr, err) = if merged {
        (None, out.try_clone()?)
    } else {
        let (stderr, err) = io::pipe()?;
        (Some(pipe::Receiver::from_owned_fd(stderr.into())?), err)
    };
    let (stdin, from) = match input {
        Input::Nothing => (None, channel::file_of(&[])?),
        Input::Bytes(bytes) => (None, channel::file_of(bytes)?),
        Input::Piped => {
            let (from, stdin) = io::pipe()?;
            (
                Some(pipe::Sender::from_owned_fd(stdin.into())?),
                from.into(),
            )
        }
    };
    let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
    Ok((stdout, stderr, stdin, [from, out.into(), err.into()]))
}

/// Starts a command.
pub(crate) async fn start(
    live: &Arc<Live>,
    exec: Exec,
    env: BTreeMap<String, String>,
    grant: Grant,
) -> Result<Running, SandboxError> {
    let made = streams(&exec.input, exec.merged);
    let (stdout, stderr, stdin, inside) =
        made.map_err(|error| SandboxError::System("the command's streams", error))?;
    let order = |id| Order::Spawn {
        id,
        command: exec.command,
        env,
        cwd: exec.cwd,
        user: exec.user.unwrap_or((0, 0)),
    };
    let started = live.spawn(order, inside).await;
    let (id, pid, ended) = started.map_err(SandboxError::Command)?;
    Ok(Running {
        pid,
        stdout,
        stderr,
        stdin,
        ended,
        stopper: Stopper {
            live: live.clone(),
            id,
        },
        grant,
    })
}
