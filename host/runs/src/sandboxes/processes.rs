//! Commands in sandboxes that outlive the request that started them: later requests find them by
//! their process id, read their output, write to them and end them.

mod log;

use super::output_room::{OutputRoom, Reserved};
use super::{Host, Task, Work};
use crate::actions::Failure;
pub use log::{Finish, LogMessage, Way};
use log::{KEPT_BYTES_MAX, Log};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use treadle_sandbox::{Event, Exec, Running, Sandbox, Share, Stopper};
use treadle_wire::{ErrorBody, ErrorCode};

/// Most concurrent commands of a sandbox.
const PROCESSES_MAX: usize = 256;
/// Most concurrent readers of a command.
const READERS_MAX: usize = 64;
/// How long a command waits for a reader that does not read.
const STALL_MAX: Duration = Duration::from_secs(30);

/// Running commands, by sandbox and process id.
#[derive(Default)]
pub struct Processes {
    all: Mutex<BTreeMap<(String, u32), Arc<Process>>>,
    room: OutputRoom,
}

/// A client's description of a command.
#[derive(Clone, Debug, Default)]
pub struct CommandDescription {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its own environment variables.
    pub env: BTreeMap<String, String>,
    /// Its working directory, if the client named one.
    pub cwd: Option<String>,
    /// The client's name for it.
    pub tag: Option<String>,
}

/// A command to be started.
pub struct Order {
    /// The client's description.
    pub description: CommandDescription,
    /// The command to run.
    pub exec: Exec,
    /// The tool name.
    pub kind: &'static str,
    /// Its description for display.
    pub what: String,
    /// Its deadline. A command with a deadline is an action and holds cores; one without runs in
    /// the background.
    pub until: Option<Instant>,
}

/// Why a command does not run.
pub enum NotStarted {
    /// Its deadline passed before it could start.
    Late,
    /// It is refused.
    Failed(Failure),
}

/// A command that runs.
pub struct Process {
    /// Its process id inside the sandbox.
    pub pid: u32,
    /// Its client's description.
    pub description: CommandDescription,
    stdin: tokio::sync::Mutex<Option<pipe::Sender>>,
    stopper: Stopper,
    log: Mutex<Log>,
    /// Memory for the log.
    _reserved: Reserved,
    /// Changes when there is more to read.
    written: watch::Sender<()>,
    /// Notified when there may be room for more output.
    taken: Notify,
    until: Option<Instant>,
}

/// Reads a command's output, from one point on.
pub struct Reader {
    process: Arc<Process>,
    number: u64,
    written: watch::Receiver<()>,
}

/// The running command, as an action or in the background.
enum Source {
    Action(Work),
    Background(Running),
}

impl Source {
    async fn next(&mut self) -> Event {
        match self {
            Self::Action(work) => work.next().await,
            Self::Background(running) => running.next().await,
        }
    }

    fn running(&mut self) -> Option<&mut Running> {
        match self {
            Self::Action(work) => work.running(),
            Self::Background(running) => Some(running),
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Action(work) if work.is_late())
    }

    fn is_withdrawn(&self) -> bool {
        matches!(self, Self::Action(work) if work.is_withdrawn())
    }
}

impl Processes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, u32), Arc<Process>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commands of a sandbox, by process id.
    pub fn list(&self, sandbox: &str) -> Vec<Arc<Process>> {
        let from = (sandbox.to_owned(), 0)..=(sandbox.to_owned(), u32::MAX);
        let all = self.lock();
        all.range(from)
            .map(|(_, process)| process.clone())
            .collect()
    }

    /// Starts a command once it has a permit. It continues without readers.
    pub async fn start(
        self: &Arc<Self>,
        host: &Host,
        sandbox: &Arc<Sandbox>,
        order: Order,
    ) -> Result<Reader, NotStarted> {
        if self.list(sandbox.id()).len() >= PROCESSES_MAX {
            let message =
                format!("command limit of the sandbox reached ({PROCESSES_MAX}); end some first");
            let error = ErrorBody::new(ErrorCode::QueueFull, message);
            return Err(NotStarted::Failed(error.into()));
        }
        let reserved = self.room.reserve(sandbox, KEPT_BYTES_MAX);
        let reserved = reserved.map_err(|error| NotStarted::Failed(error.into()))?;
        let until = order.until;
        let mut source = source(host, sandbox, order.exec, order.kind, order.what, until).await?;
        let running = source
            .running()
            .ok_or(NotStarted::Failed(Failure::Stopped))?;
        let process = Arc::new(Process {
            pid: running.pid.unsigned_abs(),
            description: order.description,
            stdin: tokio::sync::Mutex::new(running.stdin.take()),
            stopper: running.stopper(),
            log: Mutex::new(Log::new(reserved.bytes())),
            _reserved: reserved,
            written: watch::Sender::new(()),
            taken: Notify::new(),
            until,
        });
        let reader = process
            .attach(true)
            .ok_or(NotStarted::Failed(Failure::Stopped))?;
        let key = (sandbox.id().to_owned(), process.pid);
        self.lock().insert(key.clone(), process.clone());
        let all = self.clone();
        tokio::spawn(async move {
            let finish = process.take_in(&mut source).await;
            {
                let mut all = all.lock();
                // A later process may have the same id by now.
                if all.get(&key).is_some_and(|now| Arc::ptr_eq(now, &process)) {
                    all.remove(&key);
                }
            }
            process.log().finish(finish);
            process.written.send_replace(());
            // A client may be about to write to an ended process.
            process.stdin.lock().await.take();
        });
        Ok(reader)
    }
}

async fn source(
    host: &Host,
    sandbox: &Arc<Sandbox>,
    mut exec: Exec,
    kind: &'static str,
    what: String,
    until: Option<Instant>,
) -> Result<Source, NotStarted> {
    let Some(until) = until else {
        exec.share = Share::Background;
        let running = sandbox.run(exec).await;
        let running = running.map_err(|error| NotStarted::Failed(error.into()))?;
        return Ok(Source::Background(running));
    };
    let task = Task {
        kind,
        what,
        run_max: Some(until.saturating_duration_since(Instant::now())),
    };
    let work = timeout_at(until, host.run(sandbox, task, exec)).await;
    let mut work = work
        .map_err(|_| NotStarted::Late)?
        .map_err(NotStarted::Failed)?;
    // The client's timeout runs from the request.
    work.end_at(until);
    Ok(Source::Action(work))
}

impl Process {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reader of its output from now on, or with the stored earlier output. `None` if the
    /// limit on readers is reached.
    pub fn attach(self: &Arc<Self>, with_before: bool) -> Option<Reader> {
        let mut log = self.log();
        if log.readers() >= READERS_MAX {
            return None;
        }
        Some(Reader {
            number: log.attach(with_before),
            written: self.written.subscribe(),
            process: self.clone(),
        })
    }

    /// Follows it to its end.
    async fn take_in(&self, source: &mut Source) -> Finish {
        loop {
            let (way, bytes) = match source.next().await {
                Event::Output(bytes) => (Way::Output, bytes),
                Event::Errors(bytes) => (Way::Errors, bytes),
                Event::Ended(_) if source.is_late() => return Finish::Late,
                Event::Ended(_) if source.is_withdrawn() => return Finish::Withdrawn,
                Event::Ended(end) => return Finish::Ended(end),
            };
            self.put(way, bytes.into()).await;
        }
    }

    /// Stores its output. Without room it waits for readers, as a pipe does; a reader that does not
    /// read is dropped.
    async fn put(&self, way: Way, bytes: bytes::Bytes) {
        let stall = Instant::now() + STALL_MAX;
        let patience = self.until.map_or(stall, |until| until.min(stall));
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            let is_over = Instant::now() >= patience;
            if self.log().put(way, &bytes, is_over) {
                self.written.send_replace(());
                return;
            }
            let _ = timeout_at(patience, taken).await;
        }
    }

    /// Writes to it.
    ///
    /// # Errors
    /// Its input is closed, or it was started without one.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(bytes).await
    }

    /// Closes its input. Returns whether it was open.
    pub async fn close_stdin(&self) -> bool {
        self.stdin.lock().await.take().is_some()
    }

    /// Sends a signal to its first process.
    pub async fn terminate(&self, signal: i32) -> io::Result<()> {
        self.stopper.signal(signal).await
    }

    /// Kills it and all its descendants.
    pub async fn kill(&self) -> io::Result<()> {
        self.stopper.kill().await
    }
}

impl Reader {
    /// The command.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The next message for the reader. Cancel-safe.
    pub async fn next(&mut self) -> LogMessage {
        loop {
            self.written.mark_unchanged();
            if let Some(message) = self.process.log().next(self.number) {
                self.process.taken.notify_one();
                return message;
            }
            if self.written.changed().await.is_err() {
                return LogMessage::LeftBehind;
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.process.log().detach(self.number);
        self.process.taken.notify_one();
    }
}
