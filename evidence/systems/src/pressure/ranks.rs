//! One engine whose ranks step together: treadle beside routing that knows no ranks, and beside
//! programs that are pinned to ranks. All systems run the same programs to their ends.

use super::{NO_TIER, Scenario, System, systems};
use serde::Serialize;
use std::collections::BTreeMap;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::cluster::{
    ClusterOptions, EngineRanks, Environment, RankChoice, Report, TransferOptions, Watch,
    percentile, simulate_within,
};
use treadle_simulator::workload::AgentRun;

/// How programs find their ranks.
#[derive(Clone, Copy, Debug)]
pub struct RankSystem {
    /// Its name in figures.
    pub name: &'static str,
    system: System,
    chosen_by: RankChoice,
}

impl RankSystem {
    /// Whether it knows engines only.
    pub fn is_rank_blind(&self) -> bool {
        self.chosen_by == RankChoice::Engine
    }
}

/// Treadle with its defaults.
pub const TREADLE: RankSystem = RankSystem {
    name: "treadle",
    system: NO_TIER,
    chosen_by: RankChoice::Scheduler,
};

/// What treadle is compared with: routers that keep a program at its engine, which spreads its steps
/// over ranks by load; that hash a program to a rank; that pin it to the rank with the least load
/// when it begins.
pub const RIVALS: [RankSystem; 3] = [
    RankSystem {
        name: "rank_blind",
        system: systems::STICKY,
        chosen_by: RankChoice::Engine,
    },
    RankSystem {
        name: "pinned_by_hash",
        system: systems::STICKY,
        chosen_by: RankChoice::Program,
    },
    RankSystem {
        name: "pinned_by_load",
        system: systems::STICKY,
        chosen_by: RankChoice::Scheduler,
    },
];

/// The result of one system. Times are virtual.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankOutcome {
    /// The agents.
    pub scene: &'static str,
    /// KV memory of all ranks, as figures call it.
    pub share: &'static str,
    /// The system.
    pub system: &'static str,
    /// Seed of the agents.
    pub seed: u64,
    /// Median time of a program, from its first step to its end, in seconds.
    pub program_p50_s: f64,
    /// 99th percentile of that time.
    pub program_p99_s: f64,
    /// Everything else.
    pub report: Report,
}

/// One of `ranks` equal ranks of an engine: it reads a context with its own memory's bandwidth and
/// computes prompts with its own processor, while all read the weights of the experts together.
/// Chunks are as much shorter, as in SGLang.
pub fn rank_profile(engine: &EngineProfile, ranks: u32) -> EngineProfile {
    let many = u64::from(ranks);
    EngineProfile {
        prefill_tokens_per_s: engine.prefill_tokens_per_s / many,
        decode_per_kilotoken_context_ns: engine.decode_per_kilotoken_context_ns * many,
        batched_tokens_max: engine.batched_tokens_max / ranks,
        running_max: engine.running_max / ranks,
        ..engine.clone()
    }
}

impl Scenario {
    /// Agents on one engine of `GLM-4.6` on eight H100, split into ranks.
    pub fn on_ranks(name: &'static str, runs: Vec<AgentRun>, seed: u64, ranks: u32) -> Self {
        let two = Self::on_two_engines(name, runs, seed);
        Self {
            engines: 1,
            profile: rank_profile(&two.profile, ranks),
            transfers: TransferOptions {
                gpus: 1,
                ..two.transfers
            },
            ..two
        }
    }

    /// Runs a system on this number of ranks, which hold a share of the peak demand together. How
    /// figures call the share is left open.
    pub fn run_on_ranks(&self, system: &RankSystem, ranks: u32, of_peak: f64) -> RankOutcome {
        let kv_tokens = self.kv_tokens(of_peak) / u64::from(ranks);
        let options = self.options(&system.system, kv_tokens);
        let options = ClusterOptions {
            stop_at_us: None,
            count_from_us: 0,
            ..options
        };
        let around = Environment {
            ranks: Some(EngineRanks {
                count: ranks,
                chosen_by: system.chosen_by,
            }),
            reports_groups: true,
            ..Environment::default()
        };
        let mut times = ProgramTimes::default();
        let mut answers = system.system.answers();
        let report = simulate_within(&self.runs, &options, &mut *answers, around, &mut times);
        times.ended_us.sort_unstable();
        let at = |share: f64| percentile(&times.ended_us, share) as f64 / 1e6;
        RankOutcome {
            scene: self.name,
            share: "",
            system: system.name,
            seed: self.seed,
            program_p50_s: at(0.5),
            program_p99_s: at(0.99),
            report,
        }
    }
}

/// The times that programs took.
#[derive(Default)]
struct ProgramTimes {
    began_us: BTreeMap<Box<str>, u64>,
    ended_us: Vec<u64>,
}

impl Watch for ProgramTimes {
    fn heard(&mut self, now_us: u64, event: &Event) {
        match event {
            Event::Program(ProgramEvent::StepArrived(arrival)) => {
                self.began_us
                    .entry(arrival.program.clone())
                    .or_insert(now_us);
            }
            Event::Program(ProgramEvent::ProgramReleased { program, .. }) => {
                let began_us = self.began_us.remove(program).unwrap_or(now_us);
                self.ended_us.push(now_us - began_us);
            }
            _ => {}
        }
    }
}
