//! Commands in sandboxes that outlive the request that started them: whoever comes later finds them
//! by their number, reads what they write, writes to them and ends them.

mod log;

use super::{Host, Task, Work};
use crate::actions::Failure;
use log::Log;
pub(crate) use log::{Finish, Said, Way};
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

/// Commands of a sandbox at once.
const PROCESSES_MAX: usize = 256;
/// Readers of a command at once.
const READERS_MAX: usize = 64;
/// How long a command waits for a reader that takes nothing.
const STALL_MAX: Duration = Duration::from_secs(30);

/// Commands that run, by sandbox and number.
#[derive(Default)]
pub(crate) struct Processes {
    all: Mutex<BTreeMap<(String, u32), Arc<Process>>>,
}

/// What a client told of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The program.
    pub(crate) program: String,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Its own variables.
    pub(crate) env: BTreeMap<String, String>,
    /// Where it was to run, if the client said so.
    pub(crate) cwd: Option<String>,
    /// A name of the client's.
    pub(crate) tag: Option<String>,
}

/// A command to be started.
pub(crate) struct Order {
    /// What the client told.
    pub(crate) told: Told,
    /// What is run.
    pub(crate) exec: Exec,
    /// The tool, and what it does, for those who look.
    pub(crate) kind: &'static str,
    /// What it is, for those who look.
    pub(crate) what: String,
    /// When it is ended. One that is to end is an action, and has cores; one that is not runs in the
    /// background.
    pub(crate) until: Option<Instant>,
}

/// Why a command does not run.
pub(crate) enum NotStarted {
    /// Its time was over before its turn.
    Late,
    /// It is refused.
    Failed(Failure),
}

/// A command that runs.
pub(crate) struct Process {
    /// The number of its process inside.
    pub(crate) pid: u32,
    /// What its client told of it.
    pub(crate) told: Told,
    stdin: tokio::sync::Mutex<Option<pipe::Sender>>,
    stopper: Stopper,
    log: Mutex<Log>,
    /// Changes when there is more to read.
    written: watch::Sender<()>,
    /// There may be room for more.
    taken: Notify,
    until: Option<Instant>,
}

/// What a command writes, from one point on.
pub(crate) struct Reader {
    process: Arc<Process>,
    number: u64,
    written: watch::Receiver<()>,
}

/// What runs a command.
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

    /// The commands of a sandbox, by number.
    pub(crate) fn list(&self, sandbox: &str) -> Vec<Arc<Process>> {
        let from = (sandbox.to_owned(), 0)..=(sandbox.to_owned(), u32::MAX);
        let all = self.lock();
        all.range(from)
            .map(|(_, process)| process.clone())
            .collect()
    }

    /// Starts a command, once it is its turn. It runs on whoever reads it.
    pub(crate) async fn start(
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
        let until = order.until;
        let mut source = source(host, sandbox, order.exec, (order.kind, order.what), until).await?;
        let running = source.running();
        let running = running.ok_or(NotStarted::Failed(Failure::Stopped))?;
        let process = Arc::new(Process {
            pid: running.pid.unsigned_abs(),
            told: order.told,
            stdin: tokio::sync::Mutex::new(running.stdin.take()),
            stopper: running.stopper(),
            log: Mutex::default(),
            written: watch::Sender::new(()),
            taken: Notify::new(),
            until,
        });
        let reader = process.attach(true);
        let reader = reader.ok_or(NotStarted::Failed(Failure::Stopped))?;
        let key = (sandbox.id().to_owned(), process.pid);
        self.lock().insert(key.clone(), process.clone());
        let all = self.clone();
        tokio::spawn(async move {
            let finish = process.take_in(&mut source).await;
            {
                let mut all = all.lock();
                // A later process may have its number by now.
                if all.get(&key).is_some_and(|now| Arc::ptr_eq(now, &process)) {
                    all.remove(&key);
                }
            }
            process.log().finish(finish);
            process.written.send_replace(());
            // A client may be about to write to what no longer reads.
            process.stdin.lock().await.take();
        });
        Ok(reader)
    }
}

async fn source(
    host: &Host,
    sandbox: &Arc<Sandbox>,
    mut exec: Exec,
    (kind, what): (&'static str, String),
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
    // The client's time has run since it asked.
    work.end_at(until);
    Ok(Source::Action(work))
}

impl Process {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what it writes: from now on, or with what is kept of what it wrote before. `None` if as
    /// many do as may.
    pub(crate) fn attach(self: &Arc<Self>, with_before: bool) -> Option<Reader> {
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

    /// Keeps what it wrote. While there is no room, it waits for readers to take what came before, as
    /// a pipe does; one that takes nothing is left behind.
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
    /// It reads nothing more, or was started without.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(bytes).await
    }

    /// Lets it see the end of what it reads. Gives whether it was open.
    pub(crate) async fn close_stdin(&self) -> bool {
        self.stdin.lock().await.take().is_some()
    }

    /// Asks it to end: its first process.
    pub(crate) async fn terminate(&self, signal: i32) -> io::Result<()> {
        self.stopper.signal(signal).await
    }

    /// Ends it with all that descends from it.
    pub(crate) async fn kill(&self) -> io::Result<()> {
        self.stopper.kill().await
    }
}

impl Reader {
    /// The command.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// What it says next. Nothing is lost where this is dropped and called again.
    pub(crate) async fn next(&mut self) -> Said {
        loop {
            self.written.mark_unchanged();
            if let Some(said) = self.process.log().next(self.number) {
                self.process.taken.notify_one();
                return said;
            }
            if self.written.changed().await.is_err() {
                return Said::LeftBehind;
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
