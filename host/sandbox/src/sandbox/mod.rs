//! One sandbox: its state, its commands' cores, its files.

mod access;
mod exec;
mod length;
mod lifecycle;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::error::SandboxError;
use crate::platform::{Environment, Place};
use crate::record::{Record, SandboxSpec};
use crate::shares::Shared;
use crate::wire::Guard;

pub use crate::platform::End;
pub use exec::{Event, Exec, Input, Running, Share, Stopper};

/// `SIGXFSZ`.
const FILE_TOO_LONG: i32 = 25;
/// A sandbox that was stopped for exceeding its disk limit may restart, and exceed it further by
/// this fraction.
const BORNE_PART: u64 = 16;
/// At this multiple of the disk limit, nothing is run any more.
const FULL_TIMES: u64 = 2;
/// Measuring a disk may take this fraction of the time.
const MEASURING_SHARE: u32 = 20;

/// The state of a sandbox.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is waiting to be made, or being made.
    Preparing,
    /// It accepts commands.
    Ready,
    /// Its processes are frozen.
    Paused,
    /// It has files but no processes, because those ended with an earlier daemon. It is started
    /// when needed.
    Stopped,
    /// It could not be made.
    Failed(String),
    /// It is gone.
    Removed,
}

/// The current status of a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub id: String,
    /// Its specification.
    pub spec: SandboxSpec,
    /// Where it is in its life.
    pub state: State,
    /// When it was created, in microseconds since 1970.
    pub created_at_us: u64,
    /// Its age, independent of changes to the wall clock.
    #[serde(default)]
    pub age: Duration,
    /// When it expires, by the current wall clock; unknown until it was first ready.
    pub expires_at_us: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes on disk, as last measured.
    pub disk_bytes: u64,
    /// Number of running commands.
    pub commands: usize,
}

/// One sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) id: String,
    pub(crate) folder: PathBuf,
    pub(crate) place: Box<dyn Place>,
    agent: Arc<Agent>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) inner: Mutex<Inner>,
    /// Held during changes of its state, to serialize them.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) record: Record,
    pub(crate) live: Option<Arc<dyn Environment>>,
    pub(crate) disk_bytes: u64,
    pub(crate) is_over_disk: bool,
    /// Whether it is being measured.
    pub(crate) is_measured: bool,
    /// The size that it may have although that exceeds the limit.
    borne_bytes: u64,
    /// When it was last measured, and for how long.
    measured: Option<(Instant, Duration)>,
    /// Cores of each running command, by its key.
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
            is_measured: false,
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

/// The cores of a running command; released when dropped.
#[derive(Debug)]
pub struct Grant {
    sandbox: Arc<Sandbox>,
    number: Option<u64>,
    out_of_memory: u64,
}

impl Grant {
    /// Releases the cores, and returns the actual end of the command.
    pub fn end(&mut self, end: End) -> End {
        self.give_back();
        match end {
            End::Killed(_) | End::Gone if self.sandbox.lock().is_over_disk => End::OutOfDisk,
            // Caused by the limit on the size of a file.
            End::Killed(FILE_TOO_LONG) => End::OutOfDisk,
            End::Exited(1..) | End::Killed(_) | End::Gone
                if self.sandbox.place.out_of_memory() > self.out_of_memory =>
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
    pub(crate) fn new(agent: &Arc<Agent>, record: Record, state: State) -> Arc<Self> {
        let folder = agent.config.folder.join("sandboxes").join(&record.id);
        Arc::new(Self {
            id: record.id.clone(),
            place: agent
                .platform
                .place(&record.id, &record.spec.tenant, &folder),
            folder,
            agent: agent.clone(),
            state: watch::Sender::new(state),
            inner: Mutex::new(Inner::new(record)),
            changing: tokio::sync::Mutex::new(()),
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The tenant that owns it.
    pub fn tenant(&self) -> String {
        self.lock().record.spec.tenant.clone()
    }

    /// The share of its tenant of `all`, the total for all tenants.
    pub fn share_of(&self, of: Shared, all: u64) -> u64 {
        self.agent.config.shares.most(&self.tenant(), of, all)
    }

    /// A secret that grants access to the sandbox without a token of the daemon.
    pub fn secret(&self) -> String {
        self.lock().record.secret.clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its current status.
    pub fn status(&self) -> Status {
        let mut state = self.state.borrow().clone();
        if matches!(state, State::Ready | State::Stopped)
            && let Some(cause) = self.place.lost()
        {
            state = State::Failed(cause);
        }
        let inner = self.lock();
        Status {
            id: self.id.clone(),
            spec: inner.record.spec.clone(),
            state,
            created_at_us: inner.record.created_at_us,
            age: self.age(&inner.record),
            expires_at_us: inner.record.expires_at_us(&self.agent.clock),
            memory_bytes: self.place.memory_bytes(),
            disk_bytes: inner.disk_bytes,
            commands: inner.commands(),
        }
    }

    fn age(&self, record: &Record) -> Duration {
        let age_us = self.agent.clock.now_us().saturating_sub(record.made_us);
        Duration::from_micros(age_us)
    }

    /// Sets its lifetime from now on.
    ///
    /// # Errors
    /// If it can't be recorded.
    pub fn live_for(&self, ttl: Duration) -> Result<(), SandboxError> {
        let mut inner = self.lock();
        inner.record.live_for(ttl, &self.agent.clock);
        let written = inner.record.write(&self.folder);
        written.map_err(|error| SandboxError::System("the sandbox's record", error))
    }

    /// Runs a command, when the sandbox is ready. A paused sandbox is resumed.
    ///
    /// # Errors
    /// If the sandbox is gone or could not be made, or the command can't be started.
    pub async fn run(self: &Arc<Self>, mut exec: Exec) -> Result<Running, SandboxError> {
        self.check_disk()?;
        let live = self.ready().await?;
        let mut env = self.lock().record.spec.env.clone();
        env.append(&mut exec.env);
        exec.env = env;
        length::check(&exec, self.memory_bytes_max()).map_err(SandboxError::Command)?;
        let grant = self.grant(exec.share.clone());
        exec::start(live, exec, grant).await
    }

    fn memory_bytes_max(&self) -> u64 {
        let own = self.lock().record.spec.memory_bytes;
        own.unwrap_or(self.agent.config.memory_bytes)
    }

    /// Refuses further commands: each could write a little too much.
    fn check_disk(&self) -> Result<(), SandboxError> {
        let config = &self.agent.config;
        let (bytes, max) = (self.lock().disk_bytes, config.disk_bytes_max);
        if bytes <= max.saturating_mul(FULL_TIMES) || config.without.contains(&Guard::Disk) {
            return self.agent.check_share(&self.tenant());
        }
        Err(SandboxError::Command(format!(
            "the sandbox has {bytes} bytes on disk, the limit is {max}; remove files from outside first"
        )))
    }

    /// Assigns cores to its processes, for a command that one of them runs.
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
            out_of_memory: self.place.out_of_memory(),
        }
    }

    /// Marks it as unused except for being made.
    pub(crate) fn idle(&self) {
        self.share_out();
    }

    /// Applies the cores of all running commands.
    fn share_out(&self) {
        let inner = self.lock();
        let grants: Vec<&[u32]> = inner.grants.values().map(Vec::as_slice).collect();
        if let Err(error) = self.place.give(&grants)
            && *self.state.borrow() != State::Removed
        {
            tracing::warn!(sandbox = %self.id, %error, "could not set the cores of a sandbox");
        }
    }

    /// Measures its disk usage, unless a slow measurement was recent and this is not `is_urgent`.
    /// Returns whether it exceeds the limit.
    pub(crate) async fn measure(self: &Arc<Self>, is_urgent: bool) -> bool {
        let recent = |(at, took): (Instant, Duration)| at.elapsed() < took * MEASURING_SHARE;
        if !is_urgent && self.lock().measured.is_some_and(recent) {
            return false;
        }
        let began = Instant::now();
        let Some(bytes) = self.place.disk_bytes().await else {
            return false;
        };
        let max = self.agent.config.disk_bytes_max;
        let mut inner = self.lock();
        inner.disk_bytes = bytes;
        inner.measured = Some((Instant::now(), began.elapsed()));
        let borne = bytes.saturating_add(max / BORNE_PART);
        inner.borne_bytes = inner.borne_bytes.min(borne);
        bytes > max.max(inner.borne_bytes)
    }

    /// Whether it was ever measured.
    pub(crate) fn was_measured(&self) -> bool {
        self.lock().measured.is_some()
    }

    /// Measures a sandbox that was stopped for its size: it may restart with that, to remove files.
    pub(crate) async fn bear(self: &Arc<Self>) {
        self.lock().borne_bytes = u64::MAX;
        self.measure(true).await;
    }
}
