//! The task that owns the engine model and runs it against the clock, and the client for its
//! commands.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use treadle_engine_model::engine::{
    EngineSnapshot, Output, Ranks, RequestId, RequestSpec, SubmitError,
};

use super::caches::{Copies, CopyCommand, CopyLimits, CopyRecord};
use super::error::{ApiError, OpenError};

/// Progress of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The first token.
    First { cached_tokens: u32 },
    /// Further tokens.
    Tokens { count: u32 },
    /// Aborted: no further progress follows.
    Aborted,
}

/// The requests to abort.
pub(super) enum AbortScope {
    /// Requests with one of these ids; unknown ids are ignored.
    Named(Vec<String>),
    /// All requests.
    All,
}

enum Command {
    Submit {
        rank: Option<u32>,
        spec: RequestSpec,
        name: String,
        progress: mpsc::Sender<Progress>,
        accepted: oneshot::Sender<Result<(), SubmitError>>,
    },
    Abandon(RequestId),
    Abort(AbortScope),
    ResetPrefixCache,
    TakeSnapshots(oneshot::Sender<Vec<EngineSnapshot>>),
    Copy(CopyCommand),
}

/// Virtual time as a multiple of real time, without the time during which it stands still.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    scale: f64,
    stands_since: Option<Instant>,
}

impl Clock {
    fn now_us(self) -> u64 {
        let now = self.stands_since.unwrap_or_else(Instant::now);
        let ran = now.saturating_duration_since(self.start);
        (ran.as_nanos() as f64 / 1_000.0 * self.scale) as u64
    }

    /// Stops it, or lets it go on where it was.
    fn stand(&mut self, stands: bool) {
        let now = Instant::now();
        match self.stands_since.take() {
            Some(since) if stands => self.stands_since = Some(since),
            Some(since) => self.start += now - since,
            None => self.stands_since = stands.then_some(now),
        }
    }

    fn when(self, at_us: u64) -> Instant {
        // Rounded up, so that the time has come when the timer fires.
        let real_ns = (at_us as f64 * 1_000.0 / self.scale).ceil();
        self.start + Duration::from_nanos(real_ns.min(1e18) as u64)
    }
}

/// Cancels a transfer when the client that waits for it is gone.
struct CancelOnDrop {
    id: u64,
    commands: mpsc::UnboundedSender<Command>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let _ = self
            .commands
            .send(Command::Copy(CopyCommand::Cancel(self.id)));
    }
}

/// What stops the driver task.
pub(super) struct Switches {
    /// It ends when this turns true.
    pub(super) shutdown: watch::Receiver<bool>,
    /// The engine computes nothing while this is true.
    pub(super) stands: watch::Receiver<bool>,
}

/// Sends commands to the driver task.
///
/// The channel is unbounded, but its content is not: each live request accounts for one submission
/// and one abort, live requests are limited, and there are at most as many control requests as
/// connections.
#[derive(Clone)]
pub(super) struct EngineClient {
    commands: mpsc::UnboundedSender<Command>,
    live: Arc<AtomicUsize>,
    live_max: usize,
    next_id: Arc<AtomicU64>,
    late_us: Arc<AtomicU64>,
}

/// A request in the engine. Dropping it aborts the rest.
pub(super) struct OpenRequest {
    pub(super) progress: mpsc::Receiver<Progress>,
    _guard: AbandonOnDrop,
}

struct AbandonOnDrop {
    id: RequestId,
    commands: mpsc::UnboundedSender<Command>,
    live: Arc<AtomicUsize>,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        // If the driver is gone, it has no request to abort.
        let _ = self.commands.send(Command::Abandon(self.id));
    }
}

impl EngineClient {
    /// Starts the driver task of an engine.
    pub(super) fn start(
        engine: Ranks,
        time_scale: f64,
        live_max: usize,
        limits: CopyLimits,
        switches: Switches,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let clock = Clock {
            start: Instant::now(),
            scale: time_scale,
            stands_since: None,
        };
        let late_us = Arc::new(AtomicU64::new(0));
        let driver = Driver {
            late_us: Arc::clone(&late_us),
            copies: Copies::new(limits, engine.count()),
            engine,
            clock,
            live: HashMap::new(),
            names: BTreeMap::new(),
            outputs: Vec::new(),
        };
        let task = tokio::spawn(driver.run(inbox, switches));
        let live = Arc::new(AtomicUsize::new(0));
        (
            Self {
                commands,
                live,
                live_max,
                next_id: Arc::new(AtomicU64::new(1)),
                late_us,
            },
            task,
        )
    }

    /// Submits a request to a rank of the engine, or lets it choose one. `spec.id` is assigned
    /// here.
    pub(super) async fn open(
        &self,
        rank: Option<u32>,
        mut spec: RequestSpec,
        name: String,
    ) -> Result<OpenRequest, OpenError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        spec.id = id;
        let before = self.live.fetch_add(1, Ordering::Relaxed);
        let live = Arc::clone(&self.live);
        let guard = AbandonOnDrop {
            id,
            commands: self.commands.clone(),
            live,
        };
        if before >= self.live_max {
            return Err(OpenError::Full(self.live_max));
        }
        // Room for every token one by one and an abort, so the driver never waits for a slow
        // reader.
        let (sender, progress) = mpsc::channel(spec.output_tokens as usize + 1);
        let (accepted, answer) = oneshot::channel();
        let submit = Command::Submit {
            rank,
            spec,
            name,
            progress: sender,
            accepted,
        };
        self.commands.send(submit).map_err(|_| OpenError::Closed)?;
        answer.await.map_err(|_| OpenError::Closed)??;
        Ok(OpenRequest {
            progress,
            _guard: guard,
        })
    }

    pub(super) fn abort(&self, scope: AbortScope) {
        let _ = self.commands.send(Command::Abort(scope));
    }

    pub(super) fn reset_prefix_cache(&self) {
        let _ = self.commands.send(Command::ResetPrefixCache);
    }

    /// Copies the cached part of these blocks at a rank to host memory.
    pub(super) async fn export(
        &self,
        rank: u32,
        copy: String,
        program: Value,
        tags: Value,
        blocks: Vec<u64>,
    ) -> Result<CopyRecord, ApiError> {
        let (done, answer) = oneshot::channel();
        let (id, _guard) = self.transfer();
        self.copy(CopyCommand::Export {
            id,
            rank,
            copy,
            program,
            tags,
            blocks,
            done,
        });
        Ok(answer.await.map_err(|_| OpenError::Closed)??)
    }

    /// Imports a copy to a rank; returns its tokens.
    pub(super) async fn import(
        &self,
        rank: u32,
        record: CopyRecord,
        is_here: bool,
    ) -> Result<u64, ApiError> {
        let (done, answer) = oneshot::channel();
        let (id, _guard) = self.transfer();
        self.copy(CopyCommand::Import {
            id,
            rank,
            record,
            is_here,
            done,
        });
        Ok(answer.await.map_err(|_| OpenError::Closed)??)
    }

    /// Names the cached part of a prompt at a rank for another engine; returns its tokens.
    pub(super) async fn hold(
        &self,
        rank: u32,
        copy: String,
        blocks: Vec<u64>,
    ) -> Result<u64, ApiError> {
        let (done, answer) = oneshot::channel();
        self.copy(CopyCommand::Hold {
            rank,
            copy,
            blocks,
            done,
        });
        Ok(answer.await.map_err(|_| OpenError::Closed)??)
    }

    /// Fetches what a rank lacks of a prompt's cache from another engine; returns its tokens.
    pub(super) async fn take(&self, rank: u32, record: CopyRecord) -> Result<u64, ApiError> {
        let (done, answer) = oneshot::channel();
        let (id, _guard) = self.transfer();
        self.copy(CopyCommand::Take {
            id,
            rank,
            record,
            done,
        });
        Ok(answer.await.map_err(|_| OpenError::Closed)??)
    }

    /// Looks up a copy in host memory.
    pub(super) async fn find(&self, copy: &str) -> Option<CopyRecord> {
        let (found, answer) = oneshot::channel();
        let copy = copy.to_owned();
        self.copy(CopyCommand::Find { copy, found });
        answer.await.ok()?
    }

    /// Deletes a copy.
    pub(super) fn forget(&self, copy: String) {
        self.copy(CopyCommand::Drop(copy));
    }

    fn copy(&self, command: CopyCommand) {
        let _ = self.commands.send(Command::Copy(command));
    }

    fn transfer(&self) -> (u64, CancelOnDrop) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let commands = self.commands.clone();
        (id, CancelOnDrop { id, commands })
    }

    /// The engine's worst delay behind its clock, in virtual microseconds.
    pub(super) fn late_us(&self) -> u64 {
        self.late_us.load(Ordering::Relaxed)
    }

    /// The state of each rank; `None` if the driver is gone.
    pub(super) async fn snapshots(&self) -> Option<Vec<EngineSnapshot>> {
        let (sender, answer) = oneshot::channel();
        self.commands.send(Command::TakeSnapshots(sender)).ok()?;
        answer.await.ok()
    }
}

struct LiveRequest {
    name: String,
    progress: mpsc::Sender<Progress>,
}

struct Driver {
    late_us: Arc<AtomicU64>,
    engine: Ranks,
    clock: Clock,
    live: HashMap<RequestId, LiveRequest>,
    names: BTreeMap<String, RequestId>,
    outputs: Vec<Output>,
    copies: Copies,
}

impl Driver {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>, switches: Switches) {
        let Switches {
            mut shutdown,
            mut stands,
        } = switches;
        loop {
            self.catch_up();
            self.clock.stand(*stands.borrow_and_update());
            let of_engine = self.engine.next_event_at().into_iter();
            let due = of_engine.chain(self.copies.next_event_at()).min();
            let due = due.filter(|_| self.clock.stands_since.is_none());
            let due = due.map(|at_us| self.clock.when(at_us));
            tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => return,
                // If its sender is gone, this branch is off.
                Ok(()) = stands.changed() => {}
                command = inbox.recv() => {
                    let Some(command) = command else { return };
                    let now_us = self.catch_up();
                    self.handle(now_us, command);
                    while let Ok(command) = inbox.try_recv() {
                        self.handle(now_us, command);
                    }
                }
                () = wait_until(due) => {}
            }
        }
    }

    /// Runs all iterations that are due and notifies the readers.
    fn catch_up(&mut self) -> u64 {
        let now_us = self.clock.now_us();
        if let Some(due_us) = self.engine.next_event_at() {
            let late_us = now_us.saturating_sub(due_us);
            self.late_us.fetch_max(late_us, Ordering::Relaxed);
        }
        self.engine.advance(now_us, &mut self.outputs);
        for output in std::mem::take(&mut self.outputs) {
            match output {
                Output::FirstToken {
                    id, cached_tokens, ..
                } => {
                    self.notify(id, Progress::First { cached_tokens });
                }
                Output::Tokens { id, count, .. } => self.notify(id, Progress::Tokens { count }),
                Output::Preempted { .. } => {}
                Output::Finished(end) => self.forget(end.id),
            }
        }
        self.copies.advance(now_us, &mut self.engine);
        now_us
    }

    fn handle(&mut self, now_us: u64, command: Command) {
        match command {
            Command::Submit {
                rank,
                spec,
                name,
                progress,
                accepted,
            } => {
                let id = spec.id;
                let result = self.engine.submit(now_us, rank, spec);
                if result.is_ok() {
                    self.names.insert(name.clone(), id);
                    self.live.insert(id, LiveRequest { name, progress });
                }
                // A caller that is gone has sent its abort already.
                let _ = accepted.send(result);
            }
            Command::Abandon(id) => {
                self.engine.abort(now_us, id);
                self.forget(id);
            }
            Command::Abort(AbortScope::Named(names)) => {
                for name in names {
                    if let Some(id) = self.names.get(&name).copied() {
                        self.abort(now_us, id);
                    }
                }
            }
            Command::Abort(AbortScope::All) => {
                let mut ids: Vec<RequestId> = self.live.keys().copied().collect();
                ids.sort_unstable();
                for id in ids {
                    self.abort(now_us, id);
                }
            }
            Command::ResetPrefixCache => self.engine.reset_prefix_cache(),
            Command::TakeSnapshots(sender) => {
                let _ = sender.send(self.engine.snapshots());
            }
            Command::Copy(command) => self.copies.handle(now_us, &self.engine, command),
        }
    }

    fn abort(&mut self, now_us: u64, id: RequestId) {
        self.engine.abort(now_us, id);
        self.notify(id, Progress::Aborted);
        self.forget(id);
    }

    fn notify(&self, id: RequestId, progress: Progress) {
        if let Some(request) = self.live.get(&id) {
            // The channel has room for all messages; a reader that is gone aborts by its guard.
            let _ = request.progress.try_send(progress);
        }
    }

    fn forget(&mut self, id: RequestId) {
        let Some(request) = self.live.remove(&id) else {
            return;
        };
        // The id may belong to another request by now.
        if self.names.get(&request.name) == Some(&id) {
            self.names.remove(&request.name);
        }
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
