//! One sandbox: its state, what its actions have, its files.

mod access;
mod course;
mod exec;
mod length;

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
use crate::wire::Guard;

pub use crate::platform::End;
pub use exec::{Event, Exec, Input, Running, Share, Stopper};

/// `SIGXFSZ`.
const FILE_TOO_LONG: i32 = 25;
/// What was ended for having too much on disk may start again, and have this part of the bound more.
const BORNE_PART: u64 = 16;
/// With so many times the bound on disk nothing is run any more.
const FULL_TIMES: u64 = 2;
/// Measuring a disk takes at most one part in so many of the time.
const MEASURING_SHARE: u32 = 20;

/// Where a sandbox is in its life.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub id: String,
    /// What it is to be.
    pub spec: SandboxSpec,
    /// Where it is in its life.
    pub state: State,
    /// Microseconds since 1970.
    pub created_at_us: u64,
    /// How long it has been there, whatever is done to the wall clock.
    #[serde(default)]
    pub age: Duration,
    /// When its time is over, by the wall clock as it is now; unknown until it was ready once.
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
    pub(crate) place: Box<dyn Place>,
    agent: Arc<Agent>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) inner: Mutex<Inner>,
    /// Held while its state changes, so that changes come one after another.
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
            place: agent.platform.place(&record.id, &folder),
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

    /// Gives it another time to live, from now on.
    ///
    /// # Errors
    /// It can't be put on record.
    pub fn live_for(&self, ttl: Duration) -> Result<(), SandboxError> {
        let mut inner = self.lock();
        inner.record.live_for(ttl, &self.agent.clock);
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

    /// One command after another would write a little too much.
    fn check_disk(&self) -> Result<(), SandboxError> {
        let config = &self.agent.config;
        let (bytes, max) = (self.lock().disk_bytes, config.disk_bytes_max);
        if bytes <= max.saturating_mul(FULL_TIMES) || config.without.contains(&Guard::Disk) {
            return self.agent.check_share(&self.tenant());
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
            out_of_memory: self.place.out_of_memory(),
        }
    }

    /// Tells that nothing but making it has used it.
    pub(crate) fn idle(&self) {
        self.share_out();
    }

    /// Writes down what all running commands together have.
    fn share_out(&self) {
        let inner = self.lock();
        let grants: Vec<&[u32]> = inner.grants.values().map(Vec::as_slice).collect();
        if let Err(error) = self.place.give(&grants)
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

    /// Measures what was ended for having too much: it may start again with that, to take some away.
    pub(crate) async fn bear(self: &Arc<Self>) {
        self.lock().borne_bytes = u64::MAX;
        self.measure(true).await;
    }
}
