//! A comparison of scheduling systems on one rollout, as in Heddle §7: 64 GPUs, three agents, three
//! models, the same programs for all.

mod bound;
mod cluster;
mod custom;
mod suite;
mod systems;

pub use bound::SpeedOfLight;
pub use suite::{BaselineSystem, Distance, Figure, Goal, Left, Outcome, Part, Suite, SuiteOptions};
pub use systems::{
    AdmissionKind, AllocationKind, BASELINES, FULL, PlacementKind, PredictionKind, PriorityKind,
    SLIME, System, VERL, VERL_HYBRID,
};

use cluster::{Degrees, Shape, kv_bytes_per_token};
use treadle_core::{CoreConfig, KvConfig, RolloutConfig};
use treadle_engine_model::hardware::{
    Gpu, H100, HardwareError, LanguageModel, QWEN3_8B, QWEN3_14B, QWEN3_32B,
};
use treadle_model::Span;
use treadle_plugin::{Policy, PolicyError};
use treadle_policy::native::NativeEviction;
use treadle_simulator::rollout::{
    Forecasts, Placement, PolicySet, Predictor, Priority, RolloutOptions, RolloutReport, roll_out,
};
use treadle_simulator::workload::{
    AgentModel, AgentRun, AgentTask, RolloutWorkload, WorkloadError,
};

/// Share of memory that programs under way may come to need (core's setting).
const MEMORY_PPM: u32 = 950_000;

/// Programs at once at one worker of the baselines (§7.1).
pub const BASELINE_BATCH: u32 = 100;

/// One comparison: an agent with a model on a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The agent.
    pub task: AgentTask,
    /// The model.
    pub agent: AgentModel,
    /// The model's dimensions, where they are not those of `agent`, whose times of tools
    /// stay.
    pub language_model: Option<LanguageModel>,
    /// The GPUs.
    pub gpu: Gpu,
    /// How many.
    pub gpus: u32,
    /// Prompts.
    pub prompts: u32,
    /// Programs of each prompt.
    pub samples: u32,
    /// Seed of the workload.
    pub seed: u64,
}

impl Cell {
    /// The paper's cluster and batch: 64 GPUs, 400 prompts.
    pub fn of(task: AgentTask, agent: AgentModel, seed: u64) -> Self {
        Self {
            task,
            agent,
            language_model: None,
            gpu: H100,
            gpus: 64,
            prompts: 400,
            samples: 16,
            seed,
        }
    }

    /// The model's dimensions.
    pub fn model(&self) -> LanguageModel {
        self.language_model.unwrap_or(match self.agent {
            AgentModel::Qwen3Of8B => QWEN3_8B,
            AgentModel::Qwen3Of14B => QWEN3_14B,
            AgentModel::Qwen3Of32B => QWEN3_32B,
        })
    }

    /// Degree of tensor parallelism of the baselines (§7.1).
    pub fn baseline_degree(&self) -> u32 {
        match self.agent {
            AgentModel::Qwen3Of8B | AgentModel::Qwen3Of14B => 1,
            AgentModel::Qwen3Of32B => 2,
        }
    }

    fn workload(&self, epoch: u32) -> Result<Vec<AgentRun>, WorkloadError> {
        let workload = RolloutWorkload {
            task: self.task,
            model: self.agent,
            prompts: self.prompts,
            samples: self.samples,
            seed: self.seed,
            epoch,
            ..RolloutWorkload::default()
        };
        workload.generate()
    }
}

/// Why the comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// The workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The cluster.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// A policy's configuration.
    #[error("{0}")]
    Policy(PolicyError),
    /// A setting makes no sense.
    #[error("{field}: {problem}")]
    Setting {
        /// Which.
        field: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl From<PolicyError> for ComparisonError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

/// A cell's programs and cluster, ready for any number of systems.
pub struct Comparison {
    cell: Cell,
    degrees: Degrees,
    /// What is rolled out.
    runs: Vec<AgentRun>,
    /// The rollout before it, of the same prompts: what is known beforehand.
    history: Vec<AgentRun>,
}

impl Comparison {
    /// Draws the programs.
    ///
    /// # Errors
    /// A workload without programs, a model that fits on no worker.
    pub fn new(cell: Cell) -> Result<Self, ComparisonError> {
        let runs = cell.workload(1)?;
        let history = cell.workload(0)?;
        Self::of_runs(cell, runs, history)
    }

    /// The bound that no schedule passes.
    pub fn speed_of_light(&self) -> SpeedOfLight {
        SpeedOfLight::of(&self.runs, &self.degrees, self.cell.gpus)
    }

    /// Workers of each degree, smallest degree first, as the system has them.
    pub fn plan(&self, system: &System) -> Vec<(u32, u32)> {
        let counts = self.counts(system);
        self.degrees.degree.iter().copied().zip(counts).collect()
    }

    fn counts(&self, system: &System) -> Vec<u32> {
        let degree = match system.allocation {
            AllocationKind::Heddle => {
                let lengths: Vec<u64> = self.history.iter().map(AgentRun::output_tokens).collect();
                return self.degrees.allocate(self.cell.gpus, &lengths);
            }
            AllocationKind::Baseline => self.baseline_degree(),
            AllocationKind::Fix1 => self.degrees.degree[0],
            AllocationKind::Fix2 => 2,
            AllocationKind::Fix4 => 4,
            AllocationKind::Fix8 => 8,
        };
        let count = |each: &u32| {
            if *each == degree {
                self.cell.gpus / degree
            } else {
                0
            }
        };
        self.degrees.degree.iter().map(count).collect()
    }

    /// Rolls the programs out under a system.
    ///
    /// # Errors
    /// A policy that does not take its configuration.
    pub fn run(&self, system: &System) -> Result<RolloutReport, ComparisonError> {
        self.run_failing(system, &[])
    }

    /// The same while workers fail: when, in microseconds, which, and for how long.
    ///
    /// # Errors
    /// As [`Comparison::run`], and a failure of a worker that there is not.
    pub fn run_failing(
        &self,
        system: &System,
        failures: &[(u64, u32, u64)],
    ) -> Result<RolloutReport, ComparisonError> {
        let capped = system.admission == AdmissionKind::Capped;
        let shape = Shape {
            preempt: system.priority == PriorityKind::Heddle,
            running_max: capped.then_some(BASELINE_BATCH),
        };
        let counts = self.counts(system);
        let workers = self.degrees.workers(&counts, &shape);
        self.check(system, &counts, failures)?;
        let kv_bytes_per_token = kv_bytes_per_token(&self.cell.model());
        let options = RolloutOptions {
            core: self.core_config(system, kv_bytes_per_token),
            workers,
            kv_bytes_per_token,
            failures: failures.to_vec(),
            seed: self.cell.seed,
            audit: false,
        };
        let mut policies = self.policies(system)?;
        Ok(roll_out(&self.runs, &options, &mut policies))
    }

    fn core_config(&self, system: &System, kv_bytes_per_token: u64) -> CoreConfig {
        let moves = system.placement == PlacementKind::Heddle;
        let gated = system.admission == AdmissionKind::Gate;
        let link = treadle_engine_model::links::Topology::new(Vec::new()).network_bytes_per_s;
        let slowest = self.degrees.profile.first();
        let default = CoreConfig::default();
        // Engines divide their memory themselves unless programs wait for it.
        let watermark = |of_gate| if gated { of_gate } else { u32::MAX };
        CoreConfig {
            rollout: RolloutConfig {
                gather: Span::from_millis(1),
                programs_max: 1_000_000,
                memory_ppm: if gated { MEMORY_PPM } else { 0 },
                ..RolloutConfig::default()
            },
            kv: KvConfig {
                migration_tokens_per_s: if moves {
                    link / kv_bytes_per_token.max(1)
                } else {
                    0
                },
                prefill_tokens_per_s: slowest.map_or(10_000, |p| p.prefill_tokens_per_s),
                ..KvConfig::default()
            },
            high_watermark_ppm: watermark(default.high_watermark_ppm),
            low_watermark_ppm: watermark(default.low_watermark_ppm),
            queue_wait_max: Span::from_secs(1_000_000),
            program_idle_max: Span::from_secs(1_000_000),
            programs_max: 1_000_000,
            queue_steps_max: 1_000_000,
            explain: false,
            ..default
        }
    }

    fn policies(&self, system: &System) -> Result<PolicySet, ComparisonError> {
        let priority: Box<dyn Priority> = match system.priority {
            PriorityKind::Fcfs => Box::new(fcfs_priority::FcfsPriority::configure("{}")?),
            PriorityKind::RoundRobin => {
                Box::new(round_robin_priority::RoundRobinPriority::configure("{}")?)
            }
            PriorityKind::ShortestFirst => Box::new(
                shortest_first_priority::ShortestFirstPriority::configure("{}")?,
            ),
            PriorityKind::Heddle => Box::new(heddle_priority::HeddlePriority::configure("{}")?),
        };
        let placement: Box<dyn Placement> = match system.placement {
            PlacementKind::Sticky => {
                let config = r#"{"prompts": false}"#;
                Box::new(cache_aware_placement::CacheAwarePlacement::configure(
                    config,
                )?)
            }
            PlacementKind::Hybrid => Box::new(hybrid_placement::HybridPlacement::configure("{}")?),
            PlacementKind::LeastLoad => {
                Box::new(least_load_placement::LeastLoadPlacement::configure("{}")?)
            }
            PlacementKind::CacheAware => {
                Box::new(cache_aware_placement::CacheAwarePlacement::configure("{}")?)
            }
            PlacementKind::Heddle | PlacementKind::HeddleStill => {
                let config = self.degrees.placement_config();
                Box::new(heddle_placement::HeddlePlacement::configure(&config)?)
            }
        };
        Ok(PolicySet {
            forecasts: self.predictor(system)?.map(Forecasts::new),
            priority: Some(priority),
            placement,
            eviction: NativeEviction::default(),
        })
    }

    fn predictor(&self, system: &System) -> Result<Option<Predictor>, ComparisonError> {
        Ok(Some(match system.prediction {
            PredictionKind::None => return Ok(None),
            PredictionKind::Oracle => Predictor::oracle(&self.runs),
            PredictionKind::Heddle => {
                let policy = heddle_prediction::HeddlePrediction::configure("{}")?;
                self.trained(Box::new(policy))
            }
            PredictionKind::History => {
                let policy = history_prediction::HistoryPrediction::configure("{}")?;
                self.trained(Box::new(policy))
            }
            PredictionKind::PromptOnly => {
                let policy = prompt_only_prediction::PromptOnlyPrediction::configure("{}")?;
                self.trained(Box::new(policy))
            }
        }))
    }

    fn trained(&self, policy: Box<dyn treadle_simulator::rollout::Prediction>) -> Predictor {
        let mut forecasts = Forecasts::new(Predictor::Policy(policy));
        forecasts.train(&self.history);
        forecasts.into_predictor()
    }
}
