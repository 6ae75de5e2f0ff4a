//! Endpoints with data parallelism: each rank has a cache of its own, and is a worker. An engine
//! that comes back with another number of ranks is another process: the workers that it has no rank
//! for are removed, and those that it has more are added.

use super::adapter::{Declared, read_engine, read_ranks};
use super::known_ranks::KnownRanks;
use super::watch::EngineWatch;
use std::sync::atomic::Ordering::Relaxed;
use treadle_core::Event;
use treadle_core::programs::{ProgramEvent, Worker, WorkerRole, WorkerState};
use treadle_model::{WorkerId, endpoint_of};

/// Most registered workers.
pub const WORKERS_MAX: usize = 4_096;

/// The URLs of the workers that an endpoint should have; those `here` it has. `room` is how many
/// there may be.
fn places(url: &str, ranks: Option<u32>, here: &[&Worker], room: usize) -> Vec<String> {
    let endpoint = endpoint_of(url).0;
    match ranks {
        Some(ranks) if ranks > 1 && ranks as usize > room => {
            tracing::warn!(
                url,
                "its ranks are not told apart: {WORKERS_MAX} workers are the limit"
            );
            vec![url.to_owned()]
        }
        Some(ranks) if ranks > 1 => (0..ranks)
            .map(|rank| format!("{endpoint}#{rank}"))
            .collect(),
        None if !here.is_empty() => here.iter().map(|w| w.url.to_string()).collect(),
        _ => vec![url.to_owned()],
    }
}

/// The workers of an endpoint.
fn workers_at<'w>(workers: &'w [Worker], endpoint: &str) -> Vec<&'w Worker> {
    let is_here = |w: &&Worker| !w.leaving && endpoint_of(&w.url).0 == endpoint;
    workers.iter().filter(is_here).collect()
}

impl EngineWatch {
    /// Reads an engine once, registers it and watches it from then on. An endpoint with several
    /// ranks becomes one worker for each; the first gets the id, unless it has one. An engine that
    /// does not answer yet is registered as lost, and its ranks once it answers.
    pub async fn register(&self, worker: WorkerId, url: &str, declared: Declared) {
        let read = read_engine(&self.upstream, url, &declared).await;
        let (endpoint, rank) = endpoint_of(url);
        let count = match &read {
            Ok(engine) => read_ranks(&self.upstream, endpoint, engine.kind).await,
            Err(_) => None,
        };
        if let Some(rank) = rank {
            // It gets no steps, and the first look at the endpoint removes it.
            let read = match count {
                Some(count) if rank >= count => Err(format!("its engine has no rank {rank}")),
                _ => read,
            };
            let ranks = KnownRanks::default();
            return self.register_one(worker, url, declared, read, ranks).await;
        }
        let known = self.driver.workers().await.unwrap_or_default();
        let here = workers_at(&known, endpoint);
        let room = WORKERS_MAX.saturating_sub(known.len() - here.len());
        let places = places(url, count, &here, room);
        let is_gone = |w: &&&Worker| {
            let place = endpoint_of(&w.url);
            places.iter().all(|at| endpoint_of(at) != place)
        };
        let gone: Vec<WorkerId> = here.iter().filter(is_gone).map(|w| w.id).collect();
        if !gone.is_empty() {
            self.lose(&here);
        }
        if places.len() > 1 {
            let ranks = places.len();
            tracing::info!(url, ranks, "the engine has ranks, each with a cache");
        }
        // What its operator said of the endpoint holds for all its ranks.
        let state = here.first().map(|w| w.state);
        let state = state.filter(|state| *state != WorkerState::Active);
        let class = here.first().and_then(|w| w.class.clone());
        let class = declared.class.clone().or(class);
        let role = here.first().map(|w| w.role);
        let role = role.filter(|role| *role != WorkerRole::Both);
        let role = declared.role.or(role);
        let declared = Declared {
            class,
            role,
            ..declared
        };
        let is_new = known.iter().all(|w| w.id != worker);
        let mut free = Some(worker).filter(|_| is_new);
        let next = || WorkerId(self.next_worker.fetch_add(1, Relaxed));
        for at in &places {
            let place = endpoint_of(at);
            let has = known.iter().find(|w| endpoint_of(&w.url) == place);
            let has = has.map(|w| w.id);
            let id = has.or_else(|| free.take()).unwrap_or_else(next);
            let read = match place.1 {
                Some(_) => read_engine(&self.upstream, at, &declared).await,
                None => read.clone(),
            };
            let (told, ranks) = (declared.clone(), KnownRanks::told(count));
            self.register_one(id, at, told, read, ranks).await;
            let is_here = here.iter().any(|w| w.id == id);
            if let Some(state) = state.filter(|_| !is_here) {
                let set = ProgramEvent::WorkerStateSet { worker: id, state };
                self.driver.event(Event::Program(set));
            }
        }
        for worker in gone {
            self.forget(worker);
            let removed = ProgramEvent::WorkerRemoved { worker };
            self.driver.event(Event::Program(removed));
        }
    }

    /// The workers of an endpoint whose engine is another process by now: caches and weights are
    /// those of a new one.
    fn lose(&self, here: &[&Worker]) {
        for worker in here.iter().filter(|w| w.is_healthy()) {
            let cause = "the engine has another number of ranks: it is another process";
            self.driver.event(Event::Program(ProgramEvent::WorkerLost {
                worker: worker.id,
                cause: cause.into(),
            }));
        }
    }

    /// Whether the engine of a watched worker has other ranks than before. They are registered
    /// then, and this worker with them if it is one of them.
    pub(super) async fn has_other_ranks(
        &self,
        url: &str,
        declared: &Declared,
        ranks: &mut KnownRanks,
    ) -> bool {
        let (endpoint, rank) = endpoint_of(url);
        let Ok(engine) = read_engine(&self.upstream, endpoint, declared).await else {
            return false;
        };
        let Some(count) = read_ranks(&self.upstream, endpoint, engine.kind).await else {
            return false;
        };
        let is_same = if let Some(known) = ranks.known {
            known == count
        } else {
            let is_there = rank.map_or(count == 1, |rank| rank < count);
            is_there && self.registered_ranks(endpoint).await == count
        };
        if is_same {
            (ranks.known, ranks.other) = (Some(count), None);
            return false;
        }
        if ranks.other.replace(count) == Some(count) {
            self.renew(endpoint, declared);
        }
        true
    }

    /// How many ranks an endpoint has, by its workers. An operator may have removed some, but of the
    /// last one that can not be told from a rank that is new.
    async fn registered_ranks(&self, endpoint: &str) -> u32 {
        let workers = self.driver.workers().await.unwrap_or_default();
        let here = workers_at(&workers, endpoint);
        let ranks = here.iter().filter_map(|w| endpoint_of(&w.url).1);
        ranks.max().map_or(1, |last| last.saturating_add(1).max(2))
    }

    /// Registers an endpoint again, once at a time.
    fn renew(&self, endpoint: &str, declared: &Declared) {
        let begins = match self.renewed.lock() {
            Ok(mut renewed) => renewed.insert(endpoint.into()),
            Err(_) => false,
        };
        let Some(home) = self.me.upgrade().filter(|_| begins) else {
            return;
        };
        let (endpoint, declared) = (endpoint.to_owned(), declared.clone());
        tokio::spawn(async move {
            let known = home.driver.workers().await.unwrap_or_default();
            let here = workers_at(&known, &endpoint);
            if let Some(first) = here.first() {
                tracing::info!(endpoint, "the engine has other ranks than before");
                home.lose(&here);
                home.register(first.id, &endpoint, declared).await;
            }
            if let Ok(mut renewed) = home.renewed.lock() {
                renewed.remove(&*endpoint);
            }
        });
    }
}
