//! One sandbox: its state, what its actions have, its files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::cgroup::Cgroup;
use crate::error::SandboxError;
use crate::exec::{self, End, Exec, Running, Share};
use crate::files::{Entry, Files};
use crate::inside::IDS;
use crate::live::Live;
use crate::manager::Shared;
use crate::record::{Record, SandboxSpec, now_us};
use crate::usage;
use crate::wire::Guard;

/// Where commands look for programs that say nothing else.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// `SIGXFSZ`.
const FILE_TOO_LONG: i32 = 25;
/// What was ended for having too much on disk may start again, and have this part of the bound more.
const BORNE_PART: u64 = 16;
/// With so many times the bound on disk nothing is run any more.
const FULL_TIMES: u64 = 2;
/// Measuring a disk takes at most one part in so many of the time.
const MEASURING_SHARE: u32 = 20;
/// Home of root inside.
const HOME: &str = "/root";

/// Where a sandbox is in its life.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// It waits, or is being made.
    Preparing,
    /// It runs commands.
    Ready,
    /// Its processes are stopped.
    Paused,
    /// It has files but no processes: those ended with an earlier daemon. It is started when it is
    /// needed.
    Stopped,
    /// It could not be made.
    Failed(String),
    /// It is gone.
    Removed,
}

/// A sandbox as it is now.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub id: String,
    /// What it is to be.
    pub spec: SandboxSpec,
    /// Where it is in its life.
    pub state: State,
    /// Microseconds since 1970.
    pub created_at_us: u64,
    /// When its time is over; unknown until it was ready once.
    pub expires_at_us: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes that it has written to disk, as last measured.
    pub disk_bytes: u64,
    /// Commands that run.
    pub commands: usize,
}

/// One sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) id: String,
    pub(crate) folder: PathBuf,
    pub(crate) cgroup: Cgroup,
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) inner: Mutex<Inner>,
    /// Held while its state changes, so that changes come one after another.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) record: Record,
    pub(crate) live: Option<Arc<Live>>,
    pub(crate) disk_bytes: u64,
    pub(crate) is_over_disk: bool,
    /// What it may have though that is too much.
    borne_bytes: u64,
    /// When it was last measured, and how long that took.
    measured: Option<(Instant, Duration)>,
    /// Cores of each running command, by a number of its own.
    grants: BTreeMap<u64, Vec<u32>>,
    next: u64,
}

impl Inner {
    pub(crate) fn new(record: Record) -> Self {
        Self {
            record,
            live: None,
            disk_bytes: 0,
            is_over_disk: false,
            borne_bytes: 0,
            measured: None,
            grants: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn commands(&self) -> usize {
        self.grants.len()
    }
}

/// What a running command has; given back when it is dropped.
#[derive(Debug)]
pub struct Grant {
    sandbox: Arc<Sandbox>,
    number: Option<u64>,
    out_of_memory: u64,
}

impl Grant {
    /// Gives it back, and tells what an end really was.
    pub fn end(&mut self, end: End) -> End {
        self.give_back();
        match end {
            End::Killed(_) | End::Gone if self.sandbox.lock().is_over_disk => End::OutOfDisk,
            // Of the bound on one file.
            End::Killed(FILE_TOO_LONG) => End::OutOfDisk,
            End::Exited(_) | End::Killed(_) | End::Gone
                if self.sandbox.cgroup.out_of_memory() > self.out_of_memory =>
            {
                End::OutOfMemory
            }
            end => end,
        }
    }

    fn give_back(&mut self) {
        if let Some(number) = self.number.take() {
            self.sandbox.lock().grants.remove(&number);
            self.sandbox.share_out();
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Sandbox {
    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whose it is.
    pub fn tenant(&self) -> String {
        self.lock().record.spec.tenant.clone()
    }

    /// What shows that somebody may use it who has no token of the daemon.
    pub fn secret(&self) -> String {
        self.lock().record.secret.clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is now.
    pub fn status(&self) -> Status {
        let state = self.state.borrow().clone();
        let inner = self.lock();
        Status {
            id: self.id.clone(),
            spec: inner.record.spec.clone(),
            state,
            created_at_us: inner.record.created_at_us,
            expires_at_us: inner.record.expires_at_us,
            memory_bytes: self.cgroup.memory_bytes(),
            disk_bytes: inner.disk_bytes,
            commands: inner.commands(),
        }
    }

    /// Gives it another time to live, from now on.
    ///
    /// # Errors
    /// It can't be put on record.
    pub fn live_for(&self, ttl: Duration) -> Result<(), SandboxError> {
        let mut inner = self.lock();
        inner.record.expires_at_us = Some(now_us().saturating_add(ttl.as_micros() as u64));
        let written = inner.record.write(&self.folder);
        written.map_err(|error| SandboxError::System("the sandbox's record", error))
    }

    /// Changes what its owner finds it by.
    ///
    /// # Errors
    /// It can't be put on record.
    pub fn relabel(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> Result<(), SandboxError> {
        let mut inner = self.lock();
        change(&mut inner.record.spec.labels);
        let written = inner.record.write(&self.folder);
        written.map_err(|error| SandboxError::System("the sandbox's record", error))
    }

    /// Runs a command, once the sandbox is ready. One that is paused is resumed.
    ///
    /// # Errors
    /// The sandbox is gone or could not be made, or the command can't be started.
    pub async fn run(self: &Arc<Self>, mut exec: Exec) -> Result<Running, SandboxError> {
        self.check_disk()?;
        let live = self.ready().await?;
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), PATH.to_owned()),
            ("HOME".to_owned(), HOME.to_owned()),
        ]);
        env.extend(self.lock().record.spec.env.clone());
        env.append(&mut exec.env);
        if exec.cwd.is_empty() {
            HOME.clone_into(&mut exec.cwd);
        }
        let grant = self.grant(exec.share.clone());
        exec::start(&live, exec, env, grant).await
    }

    /// One command after another would write a little too much.
    fn check_disk(&self) -> Result<(), SandboxError> {
        let config = &self.shared.config;
        let (bytes, max) = (self.lock().disk_bytes, config.disk_bytes_max);
        if bytes <= max.saturating_mul(FULL_TIMES) || config.without.contains(&Guard::Disk) {
            return Ok(());
        }
        Err(SandboxError::Command(format!(
            "the sandbox has {bytes} bytes on disk, and may have {max}; remove files from outside first"
        )))
    }

    /// Gives its processes a share of the processors, for a command that one of them runs.
    pub fn grant(self: &Arc<Self>, share: Share) -> Grant {
        let cores = match share {
            Share::Core => Some(Vec::new()),
            Share::Cores(cores) => Some(cores),
            Share::Background => None,
        };
        let number = cores.map(|cores| {
            let mut inner = self.lock();
            inner.next += 1;
            let number = inner.next;
            inner.grants.insert(number, cores);
            number
        });
        if number.is_some() {
            self.share_out();
        }
        Grant {
            sandbox: self.clone(),
            number,
            out_of_memory: self.cgroup.out_of_memory(),
        }
    }

    /// Tells that nothing but making it has used it.
    pub(crate) fn idle(&self) {
        self.share_out();
    }

    /// Writes down what all running commands together have.
    fn share_out(&self) {
        if self.shared.is_without_cgroups() {
            return;
        }
        let inner = self.lock();
        let grants: Vec<&[u32]> = inner.grants.values().map(Vec::as_slice).collect();
        if let Err(error) = self.cgroup.give(&grants)
            && *self.state.borrow() != State::Removed
        {
            tracing::warn!(sandbox = %self.id, %error, "the cores of a sandbox can't be set");
        }
    }

    /// Measures its disk, unless that took long and is not long ago, or `is_urgent`. Gives whether it
    /// has more than it may.
    pub(crate) async fn measure(self: &Arc<Self>, is_urgent: bool) -> bool {
        let recent = |(at, took): (Instant, Duration)| at.elapsed() < took * MEASURING_SHARE;
        if !is_urgent && self.lock().measured.is_some_and(recent) {
            return false;
        }
        let began = Instant::now();
        let sandbox = self.clone();
        let measured = tokio::task::spawn_blocking(move || {
            usage::of_folder(&sandbox.folder)
                .saturating_add(usage::of_nameless(&sandbox.cgroup.processes()))
        });
        let Ok(bytes) = measured.await else {
            return false;
        };
        let max = self.shared.config.disk_bytes_max;
        let mut inner = self.lock();
        inner.disk_bytes = bytes;
        inner.measured = Some((Instant::now(), began.elapsed()));
        let borne = bytes.saturating_add(max / BORNE_PART);
        inner.borne_bytes = inner.borne_bytes.min(borne);
        bytes > max.max(inner.borne_bytes)
    }

    /// Measures what was ended for having too much: it may start again with that, to take some away.
    pub(crate) async fn bear(self: &Arc<Self>) {
        self.lock().borne_bytes = u64::MAX;
        self.measure(true).await;
    }

    /// Does something with its files, once it is ready.
    async fn files<T: Send + 'static>(
        self: &Arc<Self>,
        path: &str,
        work: impl FnOnce(Files<'_>) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        self.files_of((0, 0), path, work).await
    }

    /// The same, where what is made is a user's and a group's.
    async fn files_of<T: Send + 'static>(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
        work: impl FnOnce(Files<'_>) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        if owner.0.max(owner.1) >= IDS {
            let problem = format!("must have a user and a group below {IDS}");
            return Err(SandboxError::Value("owner", problem));
        }
        let live = self.present().await?;
        let config = &self.shared.config;
        let (uid, is_unbounded) = (config.uid, config.without.contains(&Guard::Lookup));
        let done = tokio::task::spawn_blocking(move || {
            work(Files {
                root: live.root(),
                uid,
                owner,
                is_unbounded,
            })
        });
        let done = done
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|error| SandboxError::File {
            path: path.to_owned(),
            error,
        })
    }

    /// The bytes of a file that has no more than `bytes_max`.
    pub async fn read(
        self: &Arc<Self>,
        path: &str,
        bytes_max: u64,
    ) -> Result<Vec<u8>, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.read(&inside, bytes_max))
            .await
    }

    /// A file to be read.
    pub async fn open(self: &Arc<Self>, path: &str) -> Result<File, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.open(&inside)).await
    }

    /// Writes a file, and makes the folders on the way.
    pub async fn write(self: &Arc<Self>, path: &str, bytes: Vec<u8>) -> Result<(), SandboxError> {
        let inside = path.to_owned();
        let room = self.room();
        self.files(path, move |files| {
            if bytes.len() as u64 > room {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let mut file = files.create(&inside, 0o644)?;
            std::io::Write::write_all(&mut file, &bytes)
        })
        .await
    }

    /// A file to be written from its beginning, with the folders on the way.
    pub async fn create(self: &Arc<Self>, path: &str, mode: u32) -> Result<File, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.create(&inside, mode))
            .await
    }

    /// The same; the file and the folders are a user's and a group's inside, where they are new.
    pub async fn create_as(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
        mode: u32,
    ) -> Result<File, SandboxError> {
        let inside = path.to_owned();
        self.files_of(owner, path, move |files| files.create(&inside, mode))
            .await
    }

    /// Bytes that it may write to disk yet, as last measured.
    pub fn room(&self) -> u64 {
        self.shared
            .config
            .disk_bytes_max
            .saturating_sub(self.lock().disk_bytes)
    }

    /// What a path leads to; a link is told as such.
    pub async fn stat(self: &Arc<Self>, path: &str) -> Result<Entry, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.stat(&inside)).await
    }

    /// What is in a folder and so many levels below, by path.
    pub async fn list(
        self: &Arc<Self>,
        path: &str,
        depth: u32,
    ) -> Result<Vec<Entry>, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.list(&inside, depth))
            .await
    }

    /// Makes a folder and those on the way. Gives whether it is new.
    pub async fn make_folder(self: &Arc<Self>, path: &str) -> Result<bool, SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.make_folders(Path::new(&inside)))
            .await
    }

    /// The same; they are a user's and a group's inside, where they are new.
    pub async fn make_folder_as(
        self: &Arc<Self>,
        owner: (u32, u32),
        path: &str,
    ) -> Result<bool, SandboxError> {
        let inside = path.to_owned();
        let make = move |files: Files<'_>| files.make_folders(Path::new(&inside));
        self.files_of(owner, path, make).await
    }

    /// Gives a file another place.
    pub async fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(), SandboxError> {
        let (old, new) = (from.to_owned(), to.to_owned());
        self.files(from, move |files| files.rename(&old, &new))
            .await
    }

    /// Removes a file, or a folder with all that is in it.
    pub async fn remove_file(self: &Arc<Self>, path: &str) -> Result<(), SandboxError> {
        let inside = path.to_owned();
        self.files(path, move |files| files.remove(&inside)).await
    }
}
