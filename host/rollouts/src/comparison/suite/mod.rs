//! A comparison suite: the comparisons of `Heddle` §7, cell by cell, and what follows from them.
//!
//! [`Part`] lists what is compared with what, [`Suite::run`] runs each system once per cell
//! and seed however many comparisons it is in, and [`Suite::figures`] puts the results beside
//! those of the paper. Nothing depends on how many threads there are.

mod distance;
mod figures;
mod parts;
#[cfg(test)]
mod tests;

pub use distance::{Distance, Left};
pub use figures::{Figure, Goal};
pub use parts::{BaselineSystem, Part};

use super::{Cell, Comparison, ComparisonError, SpeedOfLight, System};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use treadle_engine_model::hardware::{Gpu, H100};
use treadle_simulator::rollout::RolloutReport;
use treadle_simulator::workload::{AgentModel, AgentTask};

/// Most threads; results do not depend on it.
const JOBS_MAX: u32 = 64;

/// Which cells, and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuiteOptions {
    /// The agents.
    pub tasks: Vec<AgentTask>,
    /// The models.
    pub models: Vec<AgentModel>,
    /// What is compared.
    pub parts: Vec<Part>,
    /// Seeds of the workloads; figures are medians over them.
    pub seeds: Vec<u64>,
    /// The GPUs, by name.
    #[serde(serialize_with = "gpu_name")]
    pub gpu: Gpu,
    /// How many.
    pub gpus: u32,
    /// Prompts of a rollout; each is sampled 16 times.
    pub prompts: u32,
    /// Threads.
    #[serde(skip)]
    pub jobs: u32,
}

impl Default for SuiteOptions {
    /// The paper's cluster, agents and models; one seed, one thread.
    fn default() -> Self {
        Self {
            tasks: AgentTask::ALL.to_vec(),
            models: AgentModel::ALL.to_vec(),
            parts: Part::ALL.to_vec(),
            seeds: vec![1],
            gpu: H100,
            gpus: 64,
            prompts: 400,
            jobs: 1,
        }
    }
}

/// The result of one system in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The agent.
    pub task: AgentTask,
    /// The model.
    pub model: AgentModel,
    /// Seed of the workload.
    pub seed: u64,
    /// The system.
    pub system: System,
    /// Workers: degree of parallelism and how many have it.
    pub plan: Vec<(u32, u32)>,
    /// What no schedule passes.
    pub bound: SpeedOfLight,
    /// The rollout.
    pub report: RolloutReport,
}

/// All outcomes, in the order of tasks, models, seeds and systems.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suite {
    /// What was run.
    pub options: SuiteOptions,
    /// Its result.
    pub outcomes: Vec<Outcome>,
}

impl Suite {
    /// Runs all cells. `tell` is called with each cell that is done.
    ///
    /// # Errors
    /// As [`Comparison::new`] and [`Comparison::run`]; the first cell that fails names the error.
    pub fn run(
        options: &SuiteOptions,
        report_progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, ComparisonError> {
        let cells = cells(options);
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<CellResult>>> = cells.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (at, cell) = cell;
                report_progress(&format!("{} {}", cell.task.name(), cell.agent.name()));
                let outcomes = run_cell(cell, options);
                // No holder of the lock panics.
                if let Ok(mut place) = done[*at].lock() {
                    *place = Some(outcomes);
                }
            }
        };
        let jobs = options.jobs.clamp(1, JOBS_MAX);
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
        let mut outcomes = Vec::new();
        for place in done {
            let found = place.into_inner().ok().flatten();
            outcomes.extend(found.unwrap_or_else(|| Ok(Vec::new()))?);
        }
        Ok(Self {
            options: options.clone(),
            outcomes,
        })
    }

    /// The result of a system in a cell, whatever its name there.
    pub fn outcome(
        &self,
        task: AgentTask,
        model: AgentModel,
        seed: u64,
        system: &System,
    ) -> Option<&Outcome> {
        self.outcomes
            .iter()
            .find(|o| (o.task, o.model, o.seed) == (task, model, seed) && o.system.is_like(system))
    }
}

type CellResult = Result<Vec<Outcome>, ComparisonError>;

/// All cells with their positions.
fn cells(options: &SuiteOptions) -> Vec<(usize, Cell)> {
    let mut cells = Vec::new();
    for task in &options.tasks {
        for model in &options.models {
            for seed in &options.seeds {
                let cell = Cell {
                    gpu: options.gpu,
                    gpus: options.gpus,
                    prompts: options.prompts,
                    ..Cell::of(*task, *model, *seed)
                };
                cells.push((cells.len(), cell));
            }
        }
    }
    cells
}

fn run_cell(cell: &Cell, options: &SuiteOptions) -> CellResult {
    let comparison = Comparison::new(*cell)?;
    let bound = comparison.speed_of_light();
    let run = |system: &System| {
        let report = comparison.run(system)?;
        Ok(Outcome {
            task: cell.task,
            model: cell.agent,
            seed: cell.seed,
            system: *system,
            plan: comparison.plan(system),
            bound,
            report,
        })
    };
    let systems = parts::systems(options, cell.agent);
    let systems = systems.iter().filter(|one| comparison.has_degree_of(one));
    systems.map(run).collect()
}

fn gpu_name<S: serde::Serializer>(gpu: &Gpu, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(gpu.name)
}
