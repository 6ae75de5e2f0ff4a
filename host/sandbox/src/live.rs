//! A sandbox's processes: the keeper, and orders to the first process inside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::channel;
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::wire::{Order, Reply, Setup};

/// `SIGKILL`.
const KILL: i32 = 9;
/// How long the first process has until it is ready.
const READY_MAX: Duration = Duration::from_secs(20);

/// How a command ended: its code, or a signal. Nobody knows where the sandbox is gone.
pub(crate) type Ended = (Option<i32>, Option<i32>);

/// The processes of a sandbox. All of them end once it is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    line: Arc<Line>,
    root: OwnedFd,
    hearing: AbortHandle,
    /// Taken in once it has ended, for which nobody waits.
    _keeper: Child,
}

/// The line to the first process.
#[derive(Debug)]
struct Line {
    /// Of sequenced packets, which the runtime waits for as for datagrams.
    socket: UnixDatagram,
    state: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    is_gone: bool,
    starts: BTreeMap<u64, oneshot::Sender<Result<i32, String>>>,
    ends: BTreeMap<u64, oneshot::Sender<Ended>>,
}

impl Live {
    /// Starts the processes of a sandbox; `procs` are the files through which they enter its cgroups.
    ///
    /// # Errors
    /// What they told, or that they told nothing in time.
    pub(crate) async fn start(
        config: &SandboxConfig,
        setup: &Setup,
        procs: &[PathBuf],
    ) -> io::Result<Arc<Self>> {
        let (ours, theirs) = channel::pair()?;
        let (program, args) = &config.program;
        let without = serde_json::to_string(&config.without)?;
        let keeper = Command::new(program)
            .args(args)
            .args([OsString::from(config.uid.to_string()), without.into()])
            .args(procs)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        channel::send_long(ours.as_fd(), setup, &[])?;
        let socket = UnixDatagram::from_std(ours.into())?;
        let ready = tokio::time::timeout(READY_MAX, receive(&socket)).await;
        let ready = ready.map_err(|_| io::Error::other("it was not ready in time"))??;
        let root = match ready {
            Some((Reply::Ready, beside)) => beside.into_iter().next(),
            Some((Reply::Failed { cause }, _)) => return Err(io::Error::other(cause)),
            Some(_) | None => None,
        };
        let root = root.ok_or_else(|| io::Error::other("it ended before it was ready"))?;
        let state = Mutex::default();
        let line = Arc::new(Line { socket, state });
        let hearing = tokio::spawn(line.clone().hear()).abort_handle();
        Ok(Arc::new(Self {
            line,
            root,
            hearing,
            _keeper: keeper,
        }))
    }

    /// Its root folder.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Whether its first process has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.line.lock().is_gone
    }

    /// Runs a command with these as its standard input, output and error output. Gives its number for
    /// signals, that of its process inside, and its end.
    pub(crate) async fn spawn(
        &self,
        order: impl FnOnce(u64) -> Order,
        streams: [OwnedFd; 3],
    ) -> Result<(u64, i32, oneshot::Receiver<Ended>), SandboxError> {
        let (started, start) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let id = {
            let mut state = self.line.lock();
            if state.is_gone {
                return Err(SandboxError::Gone);
            }
            state.next += 1;
            let id = state.next;
            state.starts.insert(id, started);
            state.ends.insert(id, ended);
            id
        };
        let streams = streams.each_ref().map(AsFd::as_fd);
        if let Err(error) = self.line.send(&order(id), &streams).await {
            let mut state = self.line.lock();
            state.starts.remove(&id);
            state.ends.remove(&id);
            return Err(SandboxError::System("the command's order", error));
        }
        let started = start.await.map_err(|_| SandboxError::Gone)?;
        let pid = started.map_err(SandboxError::Command)?;
        Ok((id, pid, end))
    }

    /// Sends a signal to a command, or to all that descends from it.
    pub(crate) async fn signal(&self, id: u64, signal: i32, tree: bool) -> io::Result<()> {
        self.line
            .send(&Order::Signal { id, signal, tree }, &[])
            .await
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The socket closes, and all inside ends.
        self.hearing.abort();
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, order: &Order, beside: &[BorrowedFd<'_>]) -> io::Result<()> {
        let file = channel::long(order)?;
        let mut all = vec![file.as_fd()];
        all.extend(beside);
        let socket = &self.socket;
        let send = || channel::send(socket.as_fd(), &(), &all);
        socket.async_io(Interest::WRITABLE, send).await
    }

    /// Takes in a reply. Gives a command that nobody waits for any more.
    fn take(&self, reply: Reply) -> Option<u64> {
        let mut state = self.lock();
        match reply {
            Reply::Spawned { id, pid } => {
                let start = state.starts.remove(&id)?;
                return start.send(Ok(pid)).is_err().then_some(id);
            }
            Reply::NotSpawned { id, cause } => {
                state.ends.remove(&id);
                if let Some(start) = state.starts.remove(&id) {
                    let _ = start.send(Err(cause));
                }
            }
            Reply::Ended { id, code, signal } => {
                if let Some(end) = state.ends.remove(&id) {
                    let _ = end.send((code, signal));
                }
            }
            Reply::Ready | Reply::Failed { .. } => {}
        }
        None
    }

    /// Takes in what the first process tells, until it is gone.
    async fn hear(self: Arc<Self>) {
        while let Ok(Some((reply, _))) = receive(&self.socket).await {
            if let Some(id) = self.take(reply) {
                let (signal, tree) = (KILL, true);
                let _ = self.send(&Order::Signal { id, signal, tree }, &[]).await;
            }
        }
        let mut state = self.lock();
        state.is_gone = true;
        state.starts.clear();
        state.ends.clear();
    }
}

async fn receive(socket: &UnixDatagram) -> io::Result<Option<(Reply, Vec<OwnedFd>)>> {
    let receive = || channel::receive(socket.as_fd());
    socket.async_io(Interest::READABLE, receive).await
}
