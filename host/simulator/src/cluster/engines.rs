//! The engines of a cluster, and the ranks that they have.

use super::{Cluster, ClusterOptions, Environment, RankChoice};
use treadle_core::Event;
use treadle_core::memory::Capacity;
use treadle_core::programs::ProgramEvent;
use treadle_engine_model::engine::{Engine, Ranks, RequestSpec, content_hash};
use treadle_model::{EngineKind, WorkerId};

/// All engines, idle.
pub(super) fn start(options: &ClusterOptions, environment: &Environment<'_>) -> Vec<Ranks> {
    let ranks = environment.ranks.map_or(1, |ranks| ranks.count);
    let engine = |index| Ranks::new(&environment.profile(index, &options.profile), ranks);
    (0..options.engines as usize).map(engine).collect()
}

/// Number of workers that each engine is to the scheduler.
pub(super) fn workers_each(environment: &Environment<'_>) -> u32 {
    environment.ranks.map_or(1, |ranks| ranks.workers().max(1))
}

impl Cluster<'_> {
    /// Registers the workers with the scheduler.
    pub(super) fn add_workers(&mut self) {
        let each = workers_each(&self.environment);
        for worker in 0..self.options.engines * each {
            let index = worker / each;
            let engine = &self.engines[index as usize];
            let profile = engine.rank(0).profile();
            let pooled = u64::from(engine.count() / each);
            let url = match self.environment.ranks.map(|ranks| ranks.chosen_by) {
                Some(RankChoice::Scheduler) => format!("sim://engine-{index}#{}", worker % each),
                _ => format!("sim://engine-{index}"),
            };
            let capacity = Capacity {
                tokens: Some(profile.kv_tokens() * pooled),
                context_tokens_max: Some(u64::from(profile.sequence_limit_tokens())),
                slots: None,
                gpus: None,
                offloads: profile.host_blocks > 0,
            };
            self.handle(&Event::Program(ProgramEvent::WorkerAdded {
                worker: WorkerId(worker),
                url: url.into(),
                engine: EngineKind::Vllm,
                capacity,
                role: None,
            }));
        }
    }

    /// Runs the engines up to now.
    pub(super) fn advance_engines(&mut self) {
        for index in 0..self.engines.len() {
            let mut outputs = std::mem::take(&mut self.outputs);
            self.engines[index].advance(self.now, &mut outputs);
            for output in outputs.drain(..) {
                self.observe(&output);
            }
            self.outputs = outputs;
        }
    }

    /// Submits an agent's step to the engine of a worker; false if that refuses it.
    pub(super) fn submit_to(&mut self, worker: usize, agent: usize, spec: RequestSpec) -> bool {
        let (engine, rank) = self.place_of(worker);
        let ranks = u64::from(self.engines[engine].count());
        let by_program = content_hash(&[self.agents.run_index(agent) as u64]) % ranks;
        let rank = match self.environment.ranks.map(|ranks| ranks.chosen_by) {
            Some(RankChoice::Engine) => None,
            Some(RankChoice::Program) => Some(by_program as u32),
            Some(RankChoice::Scheduler) | None => Some(rank),
        };
        let submitted = self.engines[engine].submit(self.now, rank, spec);
        submitted.is_ok()
    }

    /// The engine of a worker: of an engine that is one worker, its first rank.
    pub(super) fn engine_of(&self, worker: WorkerId) -> &Engine {
        let (engine, rank) = self.place_of(worker.0 as usize);
        self.engines[engine].rank(rank)
    }

    /// Imports blocks to the engine of a worker.
    pub(super) fn import(&mut self, worker: WorkerId, blocks: &[u64]) {
        let (engine, rank) = self.place_of(worker.0 as usize);
        self.engines[engine].import(self.now, rank, blocks);
    }

    fn place_of(&self, worker: usize) -> (usize, u32) {
        let each = workers_each(&self.environment) as usize;
        (worker / each, (worker % each) as u32)
    }
}
