//! Watches engines: one task per engine probes its health and load, and reports changes to the
//! scheduler.

use super::adapter::{Declared, Detected, read_engine, read_facts, read_load};
use super::capabilities::Capabilities;
use super::drift::{Drift, DriftWatch};
use super::kinds::LogprobKinds;
use super::known_ranks::KnownRanks;
use super::models::report_models;
use super::options::WatchOptions;
use super::process::{Probed, probe};
use super::rest_pages::{RestPages, rest_read};
use super::roles::{report_role, reported_role};
use super::samples::count_samples;
use super::transfers::{Abilities, Node};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramEvent, RunningUse};
use treadle_core::programs::{Rest, Worker};
use treadle_core::{CoreConfig, Event};
use treadle_http::Upstream;
use treadle_model::{EngineKind, WorkerId};
use treadle_scheduler::DriverHandle;
use treadle_wire::EngineReading;
use treadle_wire::engines::EngineFacts;

/// Consecutive failed probes after which an engine counts as lost.
const MISSES_MAX: u32 = 3;

/// Why a sleeping engine gets no steps.
const ASLEEP: &str = "the engine is asleep; it is used again when it wakes up";

/// Watches engines.
pub struct EngineWatch {
    pub(super) me: Weak<Self>,
    pub(super) driver: DriverHandle,
    pub(super) upstream: Upstream,
    /// The id of the next new worker.
    pub(super) next_worker: Arc<AtomicU32>,
    options: WatchOptions,
    node: Arc<Node>,
    tasks: Mutex<HashMap<WorkerId, AbortHandle>>,
    /// Endpoints that are being registered again, with other ranks.
    pub(super) renewed: Mutex<HashSet<Box<str>>>,
    loads: Loads,
    details: DetailsByWorker,
    capabilities: Arc<Capabilities>,
    kinds: Arc<LogprobKinds>,
}

/// What was detected when an engine last began to answer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EngineDetails {
    /// The facts that it reports.
    pub facts: EngineFacts,
    /// What it can do with caches; `None` if unknown.
    pub abilities: Option<Abilities>,
}

/// The detected data of engines.
type DetailsByWorker = Arc<Mutex<HashMap<WorkerId, EngineDetails>>>;

/// The last reported load of engines, and its difference from the ledger.
type Loads = Arc<Mutex<HashMap<WorkerId, (EngineReading, Drift)>>>;

/// Untracked use of an engine is reported again if it changes by more than this fraction of the
/// engine's capacity: one part of `UNTRACKED_PARTS`.
const UNTRACKED_PARTS: u64 = 100;

impl EngineWatch {
    /// Watches no engine yet. `configured` are the scheduler's settings; it uses those that the
    /// engines support.
    pub fn new(
        driver: DriverHandle,
        upstream: Upstream,
        options: WatchOptions,
        node: Arc<Node>,
        configured: CoreConfig,
        next_worker: Arc<AtomicU32>,
        kinds: Arc<LogprobKinds>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            next_worker,
            capabilities: Arc::new(Capabilities::new(driver.clone(), configured)),
            driver,
            upstream,
            options,
            node,
            tasks: Mutex::default(),
            renewed: Mutex::default(),
            loads: Loads::default(),
            details: DetailsByWorker::default(),
            kinds,
        })
    }

    /// Registers what was read of a new engine, and watches it from then on.
    pub(super) async fn register_one(
        &self,
        worker: WorkerId,
        url: &str,
        declared: Declared,
        read: Result<Detected, String>,
        ranks: KnownRanks,
    ) {
        let mut pages = RestPages::default();
        let rest = match &read {
            Ok(engine) => pages.read(&self.upstream, url, engine.kind).await,
            Err(_) => None,
        };
        let speed = match &read {
            Ok(engine) if declared.speeds.is_none() && rest.is_none() => {
                let (driver, upstream) = (&self.driver, &self.upstream);
                let measuring = self.options.measure(driver, upstream, worker, url, *engine);
                measuring.await
            }
            _ => None,
        };
        let known = read.clone().unwrap_or(Detected {
            kind: declared.kind.unwrap_or(EngineKind::Openai),
            capacity: Capacity {
                tokens: declared.capacity_tokens,
                ..Capacity::default()
            },
        });
        let facts = match &read {
            Ok(engine) => read_facts(&self.upstream, url, engine.kind).await,
            Err(_) => EngineFacts::default(),
        };
        self.add(worker, url, &declared, known, &facts).await;
        if rest.is_some() {
            self.driver.event(rest_read(worker, rest));
        }
        if let Ok(engine) = &read {
            report_models(&self.driver, &self.upstream, worker, url, engine.kind).await;
        }
        let read = read.and_then(|read| match rest {
            Some(Rest::Asleep) => Err(ASLEEP.to_owned()),
            _ => Ok(read),
        });
        let answers = match read {
            Ok(_) => {
                self.driver
                    .event(Event::Program(ProgramEvent::WorkerRecovered { worker }));
                if let Some(speed) = speed {
                    self.driver.event(speed);
                }
                for counted in count_samples(&self.upstream, url, known.kind).await {
                    self.driver.event(counted);
                }
                true
            }
            Err(cause) => {
                tracing::warn!(%worker, url, %cause, "the engine does not answer yet");
                self.driver.event(Event::Program(ProgramEvent::WorkerLost {
                    worker,
                    cause: cause.into(),
                }));
                false
            }
        };
        self.watch(worker, url, declared, known, answers, ranks);
    }

    /// Puts an engine on record, with its role from the start: it gets no steps that it can't serve.
    async fn add(
        &self,
        worker: WorkerId,
        url: &str,
        declared: &Declared,
        known: Detected,
        facts: &EngineFacts,
    ) {
        let reported = reported_role(facts);
        let added = Event::Program(ProgramEvent::WorkerAdded {
            worker,
            url: url.into(),
            engine: known.kind,
            capacity: known.capacity,
            role: reported.or(declared.role),
        });
        let _ = self.driver.event_committed(added).await;
        let declared = Declared {
            role: declared.role.filter(|_| reported.is_none()),
            ..declared.clone()
        };
        for told in declared.events(worker) {
            self.driver.event(told);
        }
        report_role(&self.driver, worker, facts).await;
    }

    /// The last reported load of an engine.
    pub fn load(&self, worker: WorkerId) -> Option<EngineReading> {
        Some(self.compared(worker)?.0)
    }

    /// The last reported load of an engine, and its difference from the ledger.
    pub fn compared(&self, worker: WorkerId) -> Option<(EngineReading, Drift)> {
        self.loads.lock().ok()?.get(&worker).copied()
    }

    /// The detected data of an engine; `None` before it has answered.
    pub fn details(&self, worker: WorkerId) -> Option<EngineDetails> {
        self.details.lock().ok()?.get(&worker).cloned()
    }

    /// Stops watching an engine.
    pub fn forget(&self, worker: WorkerId) {
        let task = self
            .tasks
            .lock()
            .ok()
            .and_then(|mut tasks| tasks.remove(&worker));
        if let Some(task) = task {
            task.abort();
        }
        if let Ok(mut loads) = self.loads.lock() {
            loads.remove(&worker);
        }
        if let Ok(mut details) = self.details.lock() {
            details.remove(&worker);
        }
        self.capabilities.forget(worker);
        self.kinds.forget(worker);
    }

    fn watch(
        &self,
        worker: WorkerId,
        url: &str,
        declared: Declared,
        known: Detected,
        healthy: bool,
        ranks: KnownRanks,
    ) {
        self.capabilities.found(worker, None);
        let look = Look {
            home: self.me.clone(),
            ranks,
            driver: self.driver.clone(),
            upstream: self.upstream.clone(),
            options: self.options,
            worker,
            url: url.into(),
            declared,
            known,
            healthy,
            rest: None,
            pages: RestPages::default(),
            misses: 0,
            loads: self.loads.clone(),
            node: self.node.clone(),
            details: self.details.clone(),
            capabilities: self.capabilities.clone(),
            watch: DriftWatch::default(),
            drift: Drift::default(),
            untracked_tokens: 0,
        };
        let task = tokio::spawn(look.forever(self.options.interval)).abort_handle();
        if let Ok(mut tasks) = self.tasks.lock()
            && let Some(old) = tasks.insert(worker, task)
        {
            old.abort();
        }
    }
}

impl Drop for EngineWatch {
    fn drop(&mut self) {
        if let Ok(tasks) = self.tasks.lock() {
            tasks.values().for_each(AbortHandle::abort);
        }
    }
}

struct Look {
    home: Weak<EngineWatch>,
    ranks: KnownRanks,
    driver: DriverHandle,
    upstream: Upstream,
    options: WatchOptions,
    worker: WorkerId,
    url: Box<str>,
    declared: Declared,
    known: Detected,
    healthy: bool,
    /// Why it accepts no steps, as last reported to the scheduler.
    rest: Option<Rest>,
    pages: RestPages,
    misses: u32,
    loads: Loads,
    node: Arc<Node>,
    details: DetailsByWorker,
    capabilities: Arc<Capabilities>,
    watch: DriftWatch,
    drift: Drift,
    /// The untracked use last reported to the core.
    untracked_tokens: u64,
}

impl Look {
    async fn forever(mut self, interval: Duration) {
        if self.healthy {
            self.find().await;
        }
        loop {
            tokio::time::sleep(interval).await;
            // The gateway may have marked it as lost since the last probe.
            let held = self.driver.worker(self.worker).await.ok().flatten();
            self.healthy = held.as_ref().is_some_and(Worker::is_healthy);
            self.rest = held.and_then(|worker| worker.rest);
            let (worker, url, kind) = (self.worker, &*self.url, self.known.kind);
            match probe(&self.driver, &self.upstream, Probed { worker, url, kind }).await {
                Ok(()) => self.answered().await,
                Err(cause) => self.missed(&cause),
            }
            // Not before the second probe: at startup, all engines are registered by then.
            self.capabilities.settle();
        }
    }

    /// Detects the engine's kind and abilities, which may have changed.
    async fn find(&self) {
        let (url, kind) = (&*self.url, self.known.kind);
        let home = self.home.upgrade();
        home.inspect(|home| home.kinds.found(self.worker, url, kind));
        let (facts, abilities) = tokio::join!(
            read_facts(&self.upstream, url, kind),
            self.node.abilities(url, kind)
        );
        report_role(&self.driver, self.worker, &facts).await;
        self.capabilities.found(self.worker, abilities.clone());
        if let Ok(mut details) = self.details.lock() {
            details.insert(self.worker, EngineDetails { facts, abilities });
        }
    }

    async fn answered(&mut self) {
        self.misses = 0;
        if self.rests().await == Some(Rest::Asleep) {
            // Its caches are lost, and steps at it hang.
            if self.healthy {
                self.lose(ASLEEP);
            }
            return;
        }
        // It may be another process by now, with other ranks, or with another cache.
        if self.has_other_ranks().await {
            return;
        }
        if self.healthy {
            self.report_models().await;
            return self.read_load().await;
        }
        if let Ok(known) = read_engine(&self.upstream, &self.url, &self.declared).await {
            if self.known != known {
                self.known = known;
                self.driver
                    .event(Event::Program(ProgramEvent::WorkerCapacityRead {
                        worker: self.worker,
                        engine: known.kind,
                        capacity: known.capacity,
                    }));
            }
            self.report_models().await;
            let measuring = self.options.measure(
                &self.driver,
                &self.upstream,
                self.worker,
                &self.url,
                self.known,
            );
            if self.declared.speeds.is_none()
                && self.rest.is_none()
                && let Some(speed) = measuring.await
            {
                self.driver.event(speed);
            }
            tracing::info!(worker = %self.worker, url = %self.url, "the engine answers");
            self.driver
                .event(Event::Program(ProgramEvent::WorkerRecovered {
                    worker: self.worker,
                }));
            self.find().await;
        }
    }

    async fn report_models(&self) {
        let (worker, url, kind) = (self.worker, &*self.url, self.known.kind);
        report_models(&self.driver, &self.upstream, worker, url, kind).await;
    }

    /// Whether its endpoint is registered again, with other ranks.
    async fn has_other_ranks(&mut self) -> bool {
        let home = self.home.upgrade();
        let Some(home) = home.filter(|_| self.ranks.are_due(self.healthy)) else {
            return false;
        };
        let (url, declared) = (&*self.url, &self.declared);
        home.has_other_ranks(url, declared, &mut self.ranks).await
    }

    /// Reads whether it accepts steps, and reports changes.
    async fn rests(&mut self) -> Option<Rest> {
        let kind = self.known.kind;
        let rest = self.pages.read(&self.upstream, &self.url, kind).await;
        if std::mem::replace(&mut self.rest, rest) != rest {
            let state = rest.map_or("awake", Rest::as_str);
            tracing::info!(worker = %self.worker, url = %self.url, state, "the engine's state");
            self.driver.event(rest_read(self.worker, rest));
        }
        rest
    }

    async fn read_load(&mut self) {
        let before = self.running_use().await;
        let Some(mut load) = read_load(&self.upstream, &self.url, self.known.kind).await else {
            return;
        };
        self.ranks.saw(&self.url, &load);
        load.capacity_tokens = self.known.capacity.tokens.or(load.capacity_tokens);
        if let (Some(before), Some(after)) = (before, self.running_use().await)
            && let Some(drift) = self.watch.compare([before, after], &load)
        {
            self.follow(drift, load.capacity_tokens);
        }
        if let Ok(mut loads) = self.loads.lock() {
            loads.insert(self.worker, (load, self.drift));
        }
    }

    /// The ledger's figure for an engine that reports only running requests; engines with slots
    /// report all slots.
    async fn running_use(&self) -> Option<RunningUse> {
        if !matches!(self.known.kind, EngineKind::Vllm | EngineKind::Sglang) {
            return None;
        }
        self.driver.running_use(self.worker).await.ok().flatten()
    }

    /// Raises the alarm, and updates the ledger's figure of untracked use.
    fn follow(&mut self, drift: Drift, capacity: Option<u64>) {
        if drift.alarm && !self.drift.alarm {
            tracing::warn!(
                worker = %self.worker, url = %self.url,
                drift_tokens = drift.tokens, untracked_tokens = drift.untracked_tokens,
                "the engine's KV memory in use differs from the ledger by more than a tenth of it"
            );
        }
        self.drift = drift;
        let untracked_tokens = drift.untracked_tokens;
        let change = untracked_tokens.abs_diff(self.untracked_tokens);
        let ended = untracked_tokens == 0 && change > 0;
        if ended || change > capacity.unwrap_or(0) / UNTRACKED_PARTS {
            self.untracked_tokens = untracked_tokens;
            self.driver
                .event(Event::Program(ProgramEvent::WorkerUseRead {
                    worker: self.worker,
                    untracked_tokens,
                }));
        }
    }

    fn missed(&mut self, cause: &str) {
        self.misses += 1;
        if self.healthy && self.misses >= MISSES_MAX {
            self.lose(cause);
        }
    }

    fn lose(&mut self, cause: &str) {
        // It may be another process when it answers again.
        self.pages = RestPages::default();
        tracing::warn!(worker = %self.worker, url = %self.url, %cause, "the engine is lost");
        (self.watch, self.drift) = (DriftWatch::default(), Drift::default());
        self.untracked_tokens = 0;
        self.driver.event(Event::Program(ProgramEvent::WorkerLost {
            worker: self.worker,
            cause: cause.into(),
        }));
    }
}
