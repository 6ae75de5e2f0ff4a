//! Workloads and sets of policies of the benchmark.

use super::super::BenchError;
use super::super::real_engines::RealEngines;
use treadle_core::{KvConfig, Mode};
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::cluster::TransferOptions;
use treadle_simulator::workload::{
    AgentRun, LognormalAgents, LognormalParameter, peak_demand_tokens,
};

/// Engines.
const ENGINES: u32 = 2;

/// Context that host memory holds where there is some, in tokens.
const HOST_TOKENS: u64 = 10_000_000;

/// A set of policies that is run and predicted.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    /// `kv.retention`, so that `foresight-eviction` decides, and on simulated engines host memory and
    /// moves.
    pub(super) retains: bool,
}

const LEAST_LOAD: Set = Set {
    name: "least-load",
    mode: Mode::LeastLoad,
    retains: false,
};
const STICKY: Set = Set {
    name: "sticky",
    mode: Mode::Sticky,
    retains: false,
};
const TREADLE: Set = Set {
    name: "treadle",
    mode: Mode::ProgramAware,
    retains: false,
};
const FORESIGHT: Set = Set {
    name: "foresight",
    mode: Mode::ProgramAware,
    retains: true,
};
const SETS: [Set; 3] = [LEAST_LOAD, STICKY, TREADLE];
const CODING_SETS: [Set; 4] = [LEAST_LOAD, STICKY, TREADLE, FORESIGHT];
const SLOW_TOOLS_SETS: [Set; 3] = [LEAST_LOAD, TREADLE, FORESIGHT];

/// A workload, its engines, and the sets that are compared on it.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) sets: &'static [Set],
    pub(super) runs: Vec<AgentRun>,
    pub(super) slots: usize,
    pub(super) engines: u32,
    /// Real engines, instead of simulated ones.
    pub(super) real_engines: Option<RealEngines>,
    /// What the engines are, or are taken to be.
    pub(super) profile: EngineProfile,
    pub(super) seed: u64,
}

impl Case {
    /// What may become of caches under a set, in the run and in its replay. Real engines are not
    /// given anything for caches to go to.
    pub(super) fn kv(&self, set: &Set) -> KvConfig {
        let links = TransferOptions::default();
        let moves = set.retains && self.real_engines.is_none();
        KvConfig {
            retention: set.retains,
            host_tokens_max: if moves { HOST_TOKENS } else { 0 },
            host_tokens_per_s: links.host_tokens_per_s(),
            migration_tokens_per_s: if moves {
                links.migration_tokens_per_s()
            } else {
                0
            },
            prefill_tokens_per_s: self.profile.prefill_tokens_per_s,
            ..KvConfig::default()
        }
    }

    /// KV memory of each engine, in tokens.
    pub(super) fn kv_tokens(&self) -> u64 {
        let real_engines = self
            .real_engines
            .as_ref()
            .map(|real_engines| real_engines.tokens);
        real_engines.unwrap_or(self.profile.kv_tokens())
    }
}

/// A workload before it is made, and the KV memory of its engines as a share of what its programs
/// need at their peak.
#[derive(Clone)]
struct Shape {
    name: &'static str,
    agents: LognormalAgents,
    slots: usize,
    kv_fraction: f64,
    sets: &'static [Set],
}

/// Names of the workloads.
pub(super) const NAMES: [&str; 5] = ["coding", "roomy", "search", "wide", "slow-tools"];

/// The workloads of these names, or all; of a quick benchmark only the first, small, under the sets
/// that most have. The sets are those that differ there: on slow tools plain routing is the same
/// either way, and better than placements that last through them, and there is time to offload.
pub(super) fn cases(quick: bool, names: &[String]) -> Result<Vec<Case>, BenchError> {
    if quick {
        let mut shape = shapes()[0].clone();
        (shape.agents.programs, shape.agents.steps_max, shape.slots) = (12, 6, 6);
        shape.sets = &SETS;
        return Ok(vec![case(&shape)?]);
    }
    wanted(names).iter().map(case).collect()
}

/// The same on real engines: half as many programs, scaled to the engines' memory, and tools that
/// are faster.
pub(super) fn cases_on(
    real_engines: &RealEngines,
    profile: &EngineProfile,
    names: &[String],
    time_scale: f64,
) -> Result<Vec<Case>, BenchError> {
    let on_real_engines = |mut shape: Shape| {
        shape.agents.programs /= 2;
        shape.slots /= 2;
        let mut runs = shape.agents.generate()?;
        let peak = peak_demand_tokens(&runs, shape.slots, &EngineProfile::glm46_8xh100());
        let factor = real_engines.planned_tokens() / (shape.kv_fraction * peak as f64);
        for run in &mut runs {
            run.scale_tokens(factor);
            for step in &mut run.steps {
                step.tool_us = (step.tool_us as f64 / time_scale) as u64;
            }
        }
        Ok(Case {
            real_engines: Some(real_engines.clone()),
            engines: real_engines.count(),
            ..of_shape(
                &shape,
                runs,
                real_engines.planned_context_tokens(),
                profile.clone(),
            )
        })
    };
    wanted(names).into_iter().map(on_real_engines).collect()
}

fn wanted(names: &[String]) -> Vec<Shape> {
    let is_wanted = |shape: &Shape| names.is_empty() || names.iter().any(|name| name == shape.name);
    shapes().into_iter().filter(is_wanted).collect()
}

fn shapes() -> [Shape; 5] {
    let coding = LognormalAgents {
        context_limit_tokens: 40_000,
        steps_max: 40,
        ..LognormalAgents::default()
    };
    let median = |median: f64, sigma: f64| LognormalParameter { median, sigma };
    let of = |place: usize, (programs, slots), kv_fraction, agents: LognormalAgents| Shape {
        name: NAMES[place],
        agents: LognormalAgents { programs, ..agents },
        slots,
        kv_fraction,
        sets: &SETS,
    };
    let roomy = LognormalAgents {
        seed: 5,
        ..coding.clone()
    };
    let search = LognormalAgents {
        observation_tokens: median(1_600.0, 0.6),
        output_tokens: median(120.0, 0.6),
        tool_ms: median(4_000.0, 0.8),
        steps: median(8.0, 0.4),
        seed: 2,
        ..coding.clone()
    };
    let wide = LognormalAgents {
        system_tokens: 4_000,
        group_tokens: median(3_000.0, 0.3),
        group_size: 16,
        tool_ms: median(1_000.0, 1.0),
        seed: 3,
        ..coding.clone()
    };
    let slow_tools = LognormalAgents {
        tool_ms: median(12_000.0, 1.2),
        steps: median(9.0, 0.4),
        seed: 4,
        ..coding.clone()
    };
    [
        Shape {
            sets: &CODING_SETS,
            ..of(0, (96, 40), 0.33, coding)
        },
        of(1, (80, 36), 0.6, roomy),
        of(2, (80, 36), 0.6, search),
        of(3, (96, 40), 0.33, wide),
        Shape {
            sets: &SLOW_TOOLS_SETS,
            ..of(4, (48, 24), 0.15, slow_tools)
        },
    ]
}

fn case(shape: &Shape) -> Result<Case, BenchError> {
    let profile = EngineProfile::qwen3_32b_h100();
    let runs = shape.agents.generate()?;
    let peak = peak_demand_tokens(&runs, shape.slots, &profile) as f64;
    let kv_tokens = (peak * shape.kv_fraction / f64::from(ENGINES)) as u64;
    let profile = profile.with_kv_tokens(kv_tokens);
    Ok(of_shape(
        shape,
        runs,
        profile.sequence_limit_tokens(),
        profile,
    ))
}

/// On simulated engines, with runs that end before `limit` tokens.
fn of_shape(shape: &Shape, mut runs: Vec<AgentRun>, limit: u32, profile: EngineProfile) -> Case {
    runs.retain_mut(|run| {
        run.truncate_at(limit);
        !run.steps.is_empty()
    });
    Case {
        name: shape.name,
        sets: shape.sets,
        runs,
        slots: shape.slots,
        engines: ENGINES,
        real_engines: None,
        profile,
        seed: shape.agents.seed,
    }
}
