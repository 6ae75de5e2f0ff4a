//! Endpoints with data parallelism: each rank has a cache of its own, and is a worker.

use super::adapter::{Declared, Detected, read_engine, read_ranks};
use super::watch::EngineWatch;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use treadle_core::{Event, ProgramEvent};
use treadle_model::{WorkerId, endpoint_of};

/// Most registered workers.
pub const WORKERS_MAX: usize = 4_096;

impl EngineWatch {
    /// Reads a new engine once, registers it and watches it from then on. An endpoint with several
    /// ranks becomes one worker for each; the first gets the id, unless it has one. An engine that
    /// does not answer yet is registered as lost, and its ranks once it answers.
    pub async fn register(&self, worker: WorkerId, url: &str, declared: Declared) {
        let read = read_engine(&self.upstream, url, &declared).await;
        let (endpoint, rank) = endpoint_of(url);
        let ranks = match (&read, rank) {
            (Ok(engine), None) => read_ranks(&self.upstream, url, engine.kind).await,
            _ => BTreeSet::new(),
        };
        let known = self.driver.workers().await.unwrap_or_default();
        let is_too_many = known.len() + ranks.len() > WORKERS_MAX;
        if is_too_many {
            tracing::warn!(
                url,
                "its ranks are not told apart: {WORKERS_MAX} workers are the limit"
            );
        }
        if ranks.is_empty() || is_too_many {
            return self.register_one(worker, url, declared, read).await;
        }
        tracing::info!(
            url,
            ranks = ranks.len(),
            "the engine has ranks, each with a cache"
        );
        let is_new = known.iter().all(|w| w.id != worker);
        let mut free = Some(worker).filter(|_| is_new);
        for rank in ranks {
            let at = format!("{endpoint}#{rank}");
            let has = known.iter().find(|w| *w.url == *at).map(|w| w.id);
            let next = || WorkerId(self.next_worker.fetch_add(1, Relaxed));
            let id = has.or_else(|| free.take()).unwrap_or_else(next);
            let read = read_engine(&self.upstream, &at, &declared).await;
            self.register_one(id, &at, declared.clone(), read).await;
        }
        // It stood for all of them before they were known.
        let stood = known.iter().find(|w| w.id == worker);
        if stood.is_some_and(|w| endpoint_of(&w.url).1.is_none()) {
            self.forget(worker);
            self.driver
                .event(Event::Program(ProgramEvent::WorkerRemoved { worker }));
        }
    }

    /// Whether an engine that answers again stands for several ranks.
    pub(super) async fn has_ranks(&self, url: &str, known: Detected) -> bool {
        let is_whole = endpoint_of(url).1.is_none();
        is_whole && !read_ranks(&self.upstream, url, known.kind).await.is_empty()
    }
}
