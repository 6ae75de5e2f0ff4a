//! What is compared with all others, and the processor time that it takes.

use super::SeedFigures;
use super::policy::Linked;
use default_allocation::DefaultAllocation;
use std::time::{Duration, Instant};
use tangram_allocation::{Config, TangramAllocation};
use treadle_core::actions::{ActionCommand, ActionEvent, ElasticAnswer, ElasticQuestion};
use treadle_model::Timestamp;
use treadle_simulator::actions::{Allocator, Machine, Outcome, Pools, Trajectory, Treadle};

/// The core and the policy under test, and the processor time that they take.
#[derive(Debug, Default)]
pub(super) struct Tested {
    config: Config,
    actions: u64,
    asked: u64,
    core: Duration,
    policy: Duration,
}

/// Adds up the time that the core takes.
#[derive(Default)]
struct TimedCore {
    inner: Treadle,
    spent: Duration,
}

impl TimedCore {
    fn time<T>(&mut self, call: impl FnOnce(&mut Treadle) -> T) -> T {
        let began = Instant::now();
        let result = call(&mut self.inner);
        self.spent += began.elapsed();
        result
    }
}

impl Machine for TimedCore {
    fn handle(&mut self, now: Timestamp, event: ActionEvent) {
        self.time(|core| core.handle(now, event));
    }

    fn poll(&mut self) -> Option<ActionCommand> {
        self.time(Treadle::poll)
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.inner.deadline()
    }

    fn wake(&mut self, now: Timestamp) {
        self.time(|core| core.wake(now));
    }
}

/// Adds up the time that a policy takes.
struct TimedPolicy {
    inner: Linked<TangramAllocation>,
    spent: Duration,
}

impl Allocator for TimedPolicy {
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer {
        let began = Instant::now();
        let answer = self.inner.allocate(question);
        self.spent += began.elapsed();
        answer
    }
}

impl Tested {
    /// The core with `tangram-allocation` so configured.
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Runs a batch.
    pub(super) fn run(&mut self, pools: &Pools, trajectories: &[Trajectory]) -> Outcome {
        let mut core = TimedCore::default();
        let mut policy = TimedPolicy {
            inner: Linked(TangramAllocation {
                config: self.config.clone(),
            }),
            spent: Duration::ZERO,
        };
        let outcome = pools.run(trajectories, &mut core, &mut policy);
        self.core += core.spent;
        self.policy += policy.spent;
        self.asked += core.inner.core().actions().counters.asked;
        self.actions += outcome.actions.len() as u64;
        outcome
    }

    /// Time per trajectory with other policies, as a multiple.
    pub(super) fn others(
        &self,
        pools: &Pools,
        trajectories: &[Trajectory],
        act_s: f64,
        mut ratio: impl FnMut(&str, f64),
    ) {
        let mut of = |name: &str, policy: &mut dyn Allocator| {
            let theirs = pools.run(trajectories, &mut Treadle::default(), policy);
            ratio(name, theirs.act_s() / act_s);
        };
        let config = Config {
            share_percent: 0,
            ..self.config.clone()
        };
        of("algorithm1", &mut Linked(TangramAllocation { config }));
        of(
            "default_allocation",
            &mut Linked(DefaultAllocation::default()),
        );
    }

    /// Processor time for each action, which differs from run to run, and questions.
    pub(super) fn costs(&self, found: &mut SeedFigures) {
        let actions = self.actions.max(1) as f64;
        let each_us = |time: Duration| time.as_secs_f64() * 1e6 / actions;
        found.put("cost.us.core", each_us(self.core));
        found.put("cost.us.policy", each_us(self.policy));
        found.put("cost.share.asked", self.asked as f64 / actions);
    }
}
