//! A sandbox's processes: the keeper, and the connection to the first process inside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::blocking::blocking;
use crate::channel;
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::files::{Entry, Files, UserIds};
use crate::hosts;
use crate::platform::{self, End, Environment, Started};
use crate::wire::{Guard, Order, Reply, Setup};

/// `SIGKILL`.
const KILL: i32 = 9;
/// Timeout for the first process to become ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// Default search path of commands.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Home of root inside.
const HOME: &str = "/root";
/// User and group of root inside.
const ROOT: UserIds = UserIds::ROOT;

/// The processes of a sandbox; all end when this is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    line: Arc<Line>,
    root: Arc<OwnedFd>,
    /// The first user id of the machine that belongs to the sandbox.
    uid: u32,
    /// Whether paths may leave the root, so that a test can prove that the protection is needed.
    is_unbounded: bool,
    hearing: AbortHandle,
    /// Reaped in the background when it has ended.
    _keeper: Child,
}

/// The connection to the first process.
#[derive(Debug)]
struct Line {
    /// A sequenced-packet socket, which the runtime can poll like a datagram socket.
    socket: UnixDatagram,
    state: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    is_gone: bool,
    starts: BTreeMap<u64, oneshot::Sender<Result<i32, String>>>,
    ends: BTreeMap<u64, oneshot::Sender<End>>,
}

impl Live {
    /// Starts the processes of a sandbox; `procs` are the files for entering its cgroups.
    ///
    /// # Errors
    /// The error that they report, or a timeout.
    pub(crate) async fn start(
        config: &SandboxConfig,
        setup: &Setup,
        procs: &[PathBuf],
    ) -> io::Result<Arc<Self>> {
        let (ours, theirs) = channel::pair()?;
        let (program, args) = (&config.program, &config.arguments);
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
        let ready = ready.map_err(|_| io::Error::other("it did not become ready in time"))??;
        let root = match ready {
            Some((Reply::Ready, beside)) => beside.into_iter().next(),
            Some((Reply::Failed { cause }, _)) => return Err(io::Error::other(cause)),
            Some(_) | None => None,
        };
        let root = root.ok_or_else(|| io::Error::other("it ended before it was ready"))?;
        let state = Mutex::default();
        let line = Arc::new(Line { socket, state });
        let hearing = tokio::spawn(line.clone().hear()).abort_handle();
        let environment = Self {
            line,
            root: Arc::new(root),
            uid: config.uid,
            is_unbounded: config.without.contains(&Guard::Lookup),
            hearing,
            _keeper: keeper,
        };
        environment.settle(&setup.name).await;
        Ok(Arc::new(environment))
    }

    /// Adds the required host names, before anything runs inside.
    async fn settle(&self, name: &str) {
        let name = name.to_owned();
        let settled = self.files(ROOT, move |files| hosts::settle(files, &name));
        if let Err(error) = settled.await {
            tracing::debug!(%error, "could not change /etc/hosts of a sandbox");
        }
    }

    /// Runs an operation on its files; new files get this owner.
    async fn files<T: Send + 'static>(
        &self,
        owner: UserIds,
        work: impl FnOnce(Files<'_>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (root, uid, is_unbounded) = (self.root.clone(), self.uid, self.is_unbounded);
        blocking(move || {
            work(Files {
                root: root.as_fd(),
                uid,
                owner,
                is_unbounded,
            })
        })
        .await
    }
}

#[async_trait]
impl Environment for Live {
    fn is_gone(&self) -> bool {
        self.line.lock().is_gone
    }

    async fn spawn(
        &self,
        order: platform::Order,
        streams: [OwnedFd; 3],
    ) -> Result<Started, SandboxError> {
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let id = {
            let mut state = self.line.lock();
            if state.is_gone {
                return Err(SandboxError::Gone);
            }
            state.next += 1;
            let id = state.next;
            state.starts.insert(id, started);
            state.ends.insert(id, end);
            id
        };
        let streams = streams.each_ref().map(AsFd::as_fd);
        if let Err(error) = self.line.send(&spawned(id, order), &streams).await {
            let mut state = self.line.lock();
            state.starts.remove(&id);
            state.ends.remove(&id);
            return Err(match error.kind() {
                io::ErrorKind::ArgumentListTooLong => SandboxError::Command(error.to_string()),
                _ => SandboxError::System("the command's order", error),
            });
        }
        let started = start.await.map_err(|_| SandboxError::Gone)?;
        let pid = started.map_err(SandboxError::Command)?;
        Ok(Started { id, pid, ended })
    }

    async fn signal(&self, id: u64, signal: i32, tree: bool) -> io::Result<()> {
        self.line
            .send(&Order::Signal { id, signal, tree }, &[])
            .await
    }

    async fn open(&self, path: &str, bytes_max: u64) -> io::Result<File> {
        let path = path.to_owned();
        self.files(ROOT, move |files| files.open(&path, bytes_max))
            .await
    }

    async fn create(&self, path: &str, mode: u32, owner: UserIds) -> io::Result<File> {
        let path = path.to_owned();
        self.files(owner, move |files| files.create(&path, mode))
            .await
    }

    async fn finish(&self, _: &str, _: u32, _: UserIds, _: File) -> io::Result<()> {
        Ok(())
    }

    async fn stat(&self, path: &str) -> io::Result<Entry> {
        let path = path.to_owned();
        self.files(ROOT, move |files| files.stat(&path)).await
    }

    async fn list(&self, path: &str, depth: u32) -> io::Result<Vec<Entry>> {
        let path = path.to_owned();
        self.files(ROOT, move |files| files.list(&path, depth))
            .await
    }

    async fn make_folder(&self, path: &str, owner: UserIds) -> io::Result<bool> {
        let path = path.to_owned();
        self.files(owner, move |files| files.make_folders(Path::new(&path)))
            .await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.files(ROOT, move |files| files.rename(&from, &to))
            .await
    }

    async fn remove(&self, path: &str) -> io::Result<()> {
        let path = path.to_owned();
        self.files(ROOT, move |files| files.remove(&path)).await
    }
}

/// The order that runs a command in the first process.
fn spawned(id: u64, order: platform::Order) -> Order {
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), HOME.to_owned()),
    ]);
    env.extend(order.env);
    let is_said = !order.cwd.is_empty();
    Order::Spawn {
        id,
        command: order.command,
        env,
        cwd: if is_said { order.cwd } else { HOME.to_owned() },
        user: order.user.unwrap_or(ROOT),
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // This closes the socket, and all processes inside end.
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

    /// Handles a reply. Returns the id of a started command that nobody waits for any more.
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
                    let _ = end.send(match code {
                        Some(code) => End::Exited(code),
                        None => End::Killed(signal.unwrap_or(KILL)),
                    });
                }
            }
            Reply::Ready | Reply::Failed { .. } => {}
        }
        None
    }

    /// Handles the replies of the first process, until it is gone.
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
