//! Memory pressure: agents whose contexts need more KV cache than engines have, under
//! treadle's eviction policies and those of others, beside the same agents with room
//! for all.
//!
//! All systems get the same agents, engines and time; only which caches are kept where, and which
//! programs wait, differs. Only treadle has host memory for caches.

mod answers;
mod bound;
mod figures;
mod oracle;
mod ranks;
mod systems;
#[cfg(test)]
mod tests;

pub use answers::Native;
pub use bound::steps_per_min_bound;
pub use figures::{Figure, Goal, figures};
pub use ranks::{RIVALS, RankOutcome, RankSystem, TREADLE, rank_profile};
pub use systems::{
    ABLATIONS, Ability, BASELINES, Decider, FORESIGHT, LIMITS, NO_TIER, System, TTLS,
};

use oracle::Oracle;
use serde::Serialize;
use treadle_core::{CoreConfig, KvConfig};
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_model::hardware::GLM_46;
use treadle_model::Span;
use treadle_policy::native::NativeEviction;
use treadle_simulator::cluster::{Answers, ClusterOptions, Report, TransferOptions, simulate_with};
use treadle_simulator::workload::{AgentRun, peak_demand_tokens};

/// Agents at once, unless a benchmark has others.
pub const LIVE: usize = 144;
/// Minutes that count, unless a benchmark has others.
const MINUTES: u64 = 20;
/// GPUs of one engine.
const GPUS: u32 = 8;
/// Minutes before figures count: the first programs all begin with short contexts.
const WARM_UP_MIN: u64 = 5;
const MINUTE_US: u64 = 60_000_000;
/// Memory that is always enough, as a multiple of the peak demand.
const PLENTY: f64 = 4.0;

/// Host memory of a node for caches: half of what one of eight H100 has (2 TB, DGX H100).
const HOST_BYTES: u64 = 1 << 40;

/// Shares of the peak demand that engines have, and their names in figures.
pub const SHARES: [(&str, f64); 3] = [
    ("kv_half", 1.0 / 2.0),
    ("kv_third", 1.0 / 3.0),
    ("kv_quarter", 1.0 / 4.0),
];

/// Agents and engines.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the agents do is called, in figures.
    pub name: &'static str,
    /// The agents; a run that ends is followed by the next.
    pub runs: Vec<AgentRun>,
    /// Agents at once.
    pub live: usize,
    /// Engines.
    pub engines: u32,
    /// What each is like but for its memory.
    pub profile: EngineProfile,
    /// Host memory that engines offload to by themselves, as a share of the peak demand.
    pub host_share: f64,
    /// What caches weigh, and how they get about.
    pub transfers: TransferOptions,
    /// Minutes that count.
    pub minutes: u64,
    /// Seed of token contents.
    pub seed: u64,
}

/// The result of one system at one share of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario.
    pub scene: &'static str,
    /// The share, as figures call it.
    pub share: &'static str,
    /// The system.
    pub system: &'static str,
    /// Its result.
    pub report: Report,
}

impl Scenario {
    /// Agents on two engines of `GLM-4.6` on eight H100 each.
    pub fn on_two_engines(name: &'static str, runs: Vec<AgentRun>, seed: u64) -> Self {
        Self {
            name,
            runs,
            live: LIVE,
            engines: 2,
            profile: EngineProfile::glm46_8xh100(),
            host_share: 0.0,
            transfers: TransferOptions {
                kv_bytes_per_token: GLM_46.kv_bytes_per_token(),
                gpus: GPUS,
            },
            minutes: MINUTES,
            seed,
        }
    }

    /// KV memory of each engine at a share of the peak demand, in tokens.
    pub fn kv_tokens(&self, share: f64) -> u64 {
        let peak = peak_demand_tokens(&self.runs, self.live, &self.profile);
        (peak as f64 * share / f64::from(self.engines)) as u64
    }

    /// Runs a system with so much memory at each engine. With a seed the same on any
    /// machine.
    pub fn run(&self, system: &System, kv_tokens: u64) -> Report {
        let options = self.options(system, kv_tokens);
        let policy = system.answers();
        let mut policy: Box<dyn Answers + '_> = if system.can(Ability::Truth) {
            Box::new(Oracle::new(&self.runs, policy))
        } else {
            policy
        };
        simulate_with(&self.runs, &options, &mut *policy)
    }

    /// What [`Scenario::run`] runs with.
    pub fn options(&self, system: &System, kv_tokens: u64) -> ClusterOptions {
        let kv = KvConfig {
            retention: system.can(Ability::Retention),
            host_tokens_max: if system.can(Ability::HostTier) {
                self.host_tokens()
            } else {
                0
            },
            host_tokens_per_s: self.transfers.host_tokens_per_s(),
            migration_tokens_per_s: if system.can(Ability::Migration) {
                self.transfers.migration_tokens_per_s()
            } else {
                0
            },
            prefill_tokens_per_s: self.profile.prefill_tokens_per_s,
            ..KvConfig::default()
        };
        let kv = KvConfig {
            backlog_max: if system.can(Ability::Backlog) {
                kv.backlog_max
            } else {
                Span(0)
            },
            ..kv
        };
        let defaults = CoreConfig::default();
        ClusterOptions {
            core: CoreConfig {
                mode: system.mode,
                // Others have no bound that follows the contexts; the longest costs least steps.
                deferral_min: if kv.retention && !system.can(Ability::Patience) {
                    defaults.deferral_min
                } else {
                    defaults.deferral_max
                },
                kv,
                explain: false,
                ..defaults
            },
            policy: NativeEviction::default(),
            engines: self.engines,
            profile: self
                .profile
                .clone()
                .with_kv_tokens(kv_tokens)
                .with_host_tokens(
                    self.kv_tokens(self.host_share),
                    self.transfers.host_tokens_per_s(),
                ),
            transfers: self.transfers,
            reports_prefixes: system.can(Ability::Prefixes),
            concurrency: self.live,
            stop_at_us: Some((WARM_UP_MIN + self.minutes) * MINUTE_US),
            count_from_us: WARM_UP_MIN * MINUTE_US,
            seed: self.seed,
            audit: false,
        }
    }

    /// Context that the host memory of all nodes holds, in tokens.
    fn host_tokens(&self) -> u64 {
        let nodes = self.transfers.node_of(self.engines.max(1) - 1) + 1;
        u64::from(nodes) * HOST_BYTES / self.transfers.kv_bytes_per_token.max(1)
    }

    /// Runs the agents with room for all.
    pub fn without_pressure(&self) -> Report {
        self.run(&systems::STICKY, self.kv_tokens(PLENTY))
    }

    /// Steps a minute that no schedule passes with so much memory, by averages.
    pub fn bound(&self, kv_tokens: u64) -> f64 {
        let engine = self.profile.clone().with_kv_tokens(kv_tokens);
        steps_per_min_bound(&self.runs, self.live, self.engines, &engine)
    }
}
