//! Watching engines: one task each looks whether it answers and what it holds,
//! and tells the scheduler what changed.

use super::adapter::{Declared, check_health, read_engine, read_load};
use crate::driver::DriverHandle;
use crate::gateway::Upstream;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::AbortHandle;
use treadle_core::{Capacity, Event};
use treadle_model::{EngineKind, WorkerId};
use treadle_wire::EngineReading;

/// Looks in a row without an answer after which an engine is taken as lost.
const MISSES_MAX: u32 = 3;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Time between two looks.
    pub interval: Duration,
}

/// Watches engines.
pub struct EngineWatch {
    driver: DriverHandle,
    upstream: Upstream,
    options: WatchOptions,
    tasks: Mutex<HashMap<WorkerId, AbortHandle>>,
    loads: Loads,
}

/// What engines last said of their load.
type Loads = Arc<Mutex<HashMap<WorkerId, EngineReading>>>;

impl EngineWatch {
    /// Watches nobody yet.
    pub fn new(driver: DriverHandle, upstream: Upstream, options: WatchOptions) -> Arc<Self> {
        Arc::new(Self {
            driver,
            upstream,
            options,
            tasks: Mutex::default(),
            loads: Loads::default(),
        })
    }

    /// Reads a new engine once, registers it and watches it from then on. One
    /// that does not answer yet is registered as lost.
    pub async fn register(&self, worker: WorkerId, url: &str, declared: Declared) {
        let read = read_engine(&self.upstream, url, declared).await;
        let (engine, capacity) = read.clone().unwrap_or((
            declared.kind.unwrap_or(EngineKind::Openai),
            Capacity {
                tokens: declared.capacity_tokens,
                ..Capacity::default()
            },
        ));
        let added = Event::WorkerAdded {
            worker,
            url: url.into(),
            engine,
            capacity,
        };
        let _ = self.driver.event_committed(added).await;
        let answers = match read {
            Ok(_) => {
                self.driver.event(Event::WorkerRecovered { worker });
                true
            }
            Err(cause) => {
                tracing::warn!(%worker, url, %cause, "the engine does not answer yet");
                self.driver.event(Event::WorkerLost {
                    worker,
                    cause: cause.into(),
                });
                false
            }
        };
        self.watch(worker, url, declared, (engine, capacity), answers);
    }

    /// What an engine last said of its load.
    pub fn load(&self, worker: WorkerId) -> Option<EngineReading> {
        self.loads.lock().ok()?.get(&worker).copied()
    }

    /// Watches an engine no longer.
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
    }

    fn watch(
        &self,
        worker: WorkerId,
        url: &str,
        declared: Declared,
        known: (EngineKind, Capacity),
        healthy: bool,
    ) {
        let look = Look {
            driver: self.driver.clone(),
            upstream: self.upstream.clone(),
            worker,
            url: url.into(),
            declared,
            known,
            healthy,
            misses: 0,
            loads: self.loads.clone(),
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
    driver: DriverHandle,
    upstream: Upstream,
    worker: WorkerId,
    url: Box<str>,
    declared: Declared,
    known: (EngineKind, Capacity),
    healthy: bool,
    misses: u32,
    loads: Loads,
}

impl Look {
    async fn forever(mut self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            // The gateway may have found it dead between two looks.
            self.healthy = self.is_held_healthy().await;
            match check_health(&self.upstream, &self.url).await {
                Ok(()) => self.answered().await,
                Err(cause) => self.missed(cause),
            }
        }
    }

    async fn is_held_healthy(&self) -> bool {
        let worker = self.worker;
        let held = self.driver.read(move |view| {
            view.core
                .state()
                .workers
                .get(&worker)
                .is_some_and(treadle_core::worker::Worker::is_healthy)
        });
        held.await.unwrap_or(false)
    }

    async fn answered(&mut self) {
        self.misses = 0;
        if self.healthy {
            return self.read_load().await;
        }
        // It may be another process by now, with another cache.
        if let Ok((engine, capacity)) = read_engine(&self.upstream, &self.url, self.declared).await
        {
            if self.known != (engine, capacity) {
                self.known = (engine, capacity);
                let worker = self.worker;
                self.driver.event(Event::WorkerCapacityRead {
                    worker,
                    engine,
                    capacity,
                });
            }
            tracing::info!(worker = %self.worker, url = %self.url, "the engine answers");
            self.driver.event(Event::WorkerRecovered {
                worker: self.worker,
            });
        }
    }

    async fn read_load(&self) {
        let load = read_load(&self.upstream, &self.url, self.known.0).await;
        if let (Some(load), Ok(mut loads)) = (load, self.loads.lock()) {
            loads.insert(self.worker, load);
        }
    }

    fn missed(&mut self, cause: String) {
        self.misses += 1;
        if !self.healthy || self.misses < MISSES_MAX {
            return;
        }
        tracing::warn!(worker = %self.worker, url = %self.url, %cause, "the engine is lost");
        self.driver.event(Event::WorkerLost {
            worker: self.worker,
            cause: cause.into(),
        });
    }
}
