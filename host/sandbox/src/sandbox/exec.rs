//! A command in a sandbox.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::Grant;
use crate::channel;
use crate::error::SandboxError;
use crate::files::UserIds;
use crate::platform::{End, Environment, Order, Started};

/// `SIGKILL`.
const KILL: i32 = 9;
/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
/// Maximum size of a pipe's contents.
const PIPE_BYTES_MAX: usize = 1 << 20;
/// Timeout for a killed command to end, while its sandbox runs.
const END_MAX: Duration = Duration::from_secs(5);
/// How long output is read after the end, since background processes may keep it open.
const OUTPUT_MAX: Duration = Duration::from_millis(20);

/// A command to run, with its input and environment.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// The program and its arguments, without a shell.
    pub command: Vec<String>,
    /// Variables in addition to those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Working folder; root's home if empty.
    pub cwd: String,
    /// User and group inside; root if `None`.
    pub user: Option<UserIds>,
    /// Its standard input.
    pub input: Input,
    /// Whether standard error is merged into standard output.
    pub merged: bool,
    /// Its share of the cores.
    pub share: Share,
}

impl Exec {
    /// A command with defaults for everything else.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self {
            command,
            ..Self::default()
        }
    }
}

/// The cores of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Share {
    /// Any one core.
    #[default]
    Core,
    /// These cores.
    Cores(Vec<u32>),
    /// Those of other commands in its sandbox, and a little if none runs.
    Background,
}

/// The standard input of a command.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// Nothing.
    #[default]
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Input written while it runs.
    Piped,
}

/// An event of a running command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// Bytes of its standard output.
    Output(Vec<u8>),
    /// Bytes of its standard error.
    Errors(Vec<u8>),
    /// Its end. Nothing follows.
    Ended(End),
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    /// Its pid inside.
    pub pid: i32,
    /// Its standard input, if that is piped.
    pub stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    /// When and how it ended.
    end: Option<(Instant, End)>,
    ended: oneshot::Receiver<End>,
    stopper: Stopper,
    grant: Grant,
}

/// Stops a command from elsewhere.
#[derive(Clone, Debug)]
pub struct Stopper {
    live: Arc<dyn Environment>,
    id: u64,
}

impl Stopper {
    /// Sends a signal to the command's first process.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub async fn signal(&self, signal: i32) -> io::Result<()> {
        self.live.signal(self.id, signal, false).await
    }

    /// Kills the command and all its descendants.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub async fn kill(&self) -> io::Result<()> {
        self.live.signal(self.id, KILL, true).await
    }
}

impl Running {
    /// A handle to stop it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The next event. The command's cores are released at its end, though its background processes
    /// may still write. Dropping the future loses no output.
    pub async fn next(&mut self) -> Event {
        let mut bytes = vec![0; READ_BYTES];
        let mut more = vec![0; READ_BYTES];
        loop {
            let silent = self.stdout.is_none() && self.stderr.is_none();
            if let Some((_, end)) = self.end.filter(|_| silent) {
                return Event::Ended(end);
            }
            let over = self.end.map(|(at, _)| at + OUTPUT_MAX);
            tokio::select! {
                read = read(&mut self.stdout, &mut bytes), if self.stdout.is_some() => match read {
                    0 => self.stdout = None,
                    read => {
                        bytes.truncate(read);
                        return Event::Output(bytes);
                    }
                },
                read = read(&mut self.stderr, &mut more), if self.stderr.is_some() => match read {
                    0 => self.stderr = None,
                    read => {
                        more.truncate(read);
                        return Event::Errors(more);
                    }
                },
                ended = &mut self.ended, if self.end.is_none() => {
                    let end = ended.unwrap_or(End::Gone);
                    self.end = Some((Instant::now(), self.grant.end(end)));
                }
                () = sleep_until(over), if over.is_some() => {
                    if let Some(rest) = rest(self.stdout.take()) {
                        return Event::Output(rest);
                    }
                    if let Some(rest) = rest(self.stderr.take()) {
                        return Event::Errors(rest);
                    }
                }
            }
        }
    }

    /// Follows it to its end, and kills it after `max`. Returns its end, and whether it was killed.
    /// A killed command in a paused sandbox ends only when that is resumed, which is not waited
    /// for.
    pub async fn follow(&mut self, max: Duration, mut take: impl FnMut(&Event)) -> (End, bool) {
        let until = tokio::time::sleep(max);
        tokio::pin!(until);
        let mut is_late = false;
        loop {
            tokio::select! {
                event = self.next() => match event {
                    Event::Ended(end) => return (end, is_late),
                    event => take(&event),
                },
                () = &mut until => {
                    if is_late {
                        return (End::Gone, true);
                    }
                    is_late = true;
                    until.set(tokio::time::sleep(END_MAX));
                    let stopper = self.stopper();
                    tokio::spawn(async move { stopper.kill().await });
                }
            }
        }
    }
}

/// Reads available bytes; none when the pipe is closed.
async fn read(from: &mut Option<pipe::Receiver>, bytes: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(bytes).await.unwrap_or(0),
        None => 0,
    }
}

/// The remaining contents of a pipe. On a busy machine the last output may be there before the
/// runtime was notified.
fn rest(from: Option<pipe::Receiver>) -> Option<Vec<u8>> {
    let from = from?.into_nonblocking_fd().ok()?;
    let mut rest = Vec::new();
    let mut bytes = vec![0; READ_BYTES];
    while rest.len() < PIPE_BYTES_MAX {
        match rustix::io::read(&from, &mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(read) => rest.extend(&bytes[..read]),
        }
    }
    (!rest.is_empty()).then_some(rest)
}

async fn sleep_until(until: Option<Instant>) {
    if let Some(until) = until {
        tokio::time::sleep_until(until.into()).await;
    }
}

/// The outer and inner ends of the pipes.
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
    live: Arc<dyn Environment>,
    exec: Exec,
    grant: Grant,
) -> Result<Running, SandboxError> {
    let made = streams(&exec.input, exec.merged);
    let (stdout, stderr, stdin, inside) =
        made.map_err(|error| SandboxError::System("the command's streams", error))?;
    let order = Order {
        command: exec.command,
        env: exec.env,
        cwd: exec.cwd,
        user: exec.user,
        merged: exec.merged,
    };
    let Started { id, pid, ended } = live.spawn(order, inside).await?;
    Ok(Running {
        pid,
        stdin,
        stdout: Some(stdout),
        stderr,
        end: None,
        ended,
        stopper: Stopper { live, id },
        grant,
    })
}
