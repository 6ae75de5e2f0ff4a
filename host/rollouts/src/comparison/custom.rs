//! Comparisons beyond the paper's: programs from anywhere, other models, sets of policies by name,
//! workers that fail.

use super::{
    AdmissionKind, AllocationKind, Cell, Comparison, ComparisonError, Degrees, PlacementKind,
    PredictionKind, PriorityKind, System,
};
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::workload::AgentRun;

macro_rules! named {
    ($kind:ident { $($name:literal => $variant:ident),* $(,)? }) => {
        impl $kind {
            /// All, by the names that options have.
            pub const NAMED: &[(&str, Self)] = &[$(($name, Self::$variant)),*];

            /// The kind with this name.
            pub fn named(name: &str) -> Option<Self> {
                let found = Self::NAMED.iter().find(|(each, _)| *each == name);
                found.map(|(_, kind)| *kind)
            }

            /// Its name in options and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }
    };
}

named!(PredictionKind {
    "none" => None,
    "heddle" => Heddle,
    "history" => History,
    "prompt-only" => PromptOnly,
    "oracle" => Oracle,
});
named!(PriorityKind {
    "fcfs" => Fcfs,
    "round-robin" => RoundRobin,
    "shortest-first" => ShortestFirst,
    "heddle" => Heddle,
});
named!(PlacementKind {
    "sticky" => Sticky,
    "hybrid" => Hybrid,
    "least-load" => LeastLoad,
    "cache-aware" => CacheAware,
    "heddle" => Heddle,
    "heddle-still" => HeddleStill,
});
named!(AllocationKind {
    "baseline" => Baseline,
    "fix1" => Fix1,
    "fix2" => Fix2,
    "fix4" => Fix4,
    "fix8" => Fix8,
    "heddle" => Heddle,
});
named!(AdmissionKind {
    "capped" => Capped,
    "memory" => Memory,
    "gate" => Gate,
});

impl System {
    /// The same under another name.
    pub fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Whether both have the same policies, whatever they are called.
    pub fn is_like(&self, other: &Self) -> bool {
        self.called("") == other.called("")
    }

    /// Its policies, in the order of the paper's terms.
    pub fn describe(&self) -> String {
        format!(
            "prediction {}, priority {}, placement {}, allocation {}, admission {}",
            self.prediction.name(),
            self.priority.name(),
            self.placement.name(),
            self.allocation.name(),
            self.admission.name()
        )
    }
}

impl Comparison {
    /// A comparison on these programs, after a rollout that is known: predictors learn from it, and
    /// degrees of parallelism are chosen for its lengths. An empty one leaves them without.
    ///
    /// # Errors
    /// No programs; a model that fits on no worker of the cell.
    pub fn of_runs(
        cell: Cell,
        runs: Vec<AgentRun>,
        history: Vec<AgentRun>,
    ) -> Result<Self, ComparisonError> {
        if runs.iter().all(|run| run.steps.is_empty()) {
            return Err(setting("programs", "there are none; give at least one"));
        }
        let known = if history.is_empty() { &runs } else { &history };
        let mut degrees = Degrees::of(&cell, known)?;
        degrees.keep_up_to(cell.gpus);
        if degrees.degree.is_empty() {
            let model = cell.model().name;
            let problem = format!(
                "{model} does not fit on {} {}; take more or larger ones",
                cell.gpus, cell.gpu.name
            );
            return Err(setting("gpus", problem));
        }
        Ok(Self {
            cell,
            degrees,
            runs,
            history,
        })
    }

    /// The cell.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// What is rolled out.
    pub fn runs(&self) -> &[AgentRun] {
        &self.runs
    }

    /// The longest context that some worker of the cell can hold, in tokens.
    ///
    /// # Errors
    /// As [`Comparison::of_runs`].
    pub fn context_limit_tokens(cell: &Cell) -> Result<u32, ComparisonError> {
        let mut degrees = Degrees::of(cell, &[])?;
        degrees.keep_up_to(cell.gpus);
        let limits = degrees.profile.iter();
        let limits = limits.map(EngineProfile::sequence_limit_tokens);
        Ok(limits.max().unwrap_or(0))
    }

    /// The paper's for its models (§7.1), else the smallest that the model fits on.
    pub(super) fn baseline_degree(&self) -> u32 {
        let wanted = self.cell.baseline_degree();
        let papers = self.cell.language_model.is_none();
        if papers && self.degrees.degree.contains(&wanted) {
            return wanted;
        }
        self.degrees.degree[0]
    }

    /// Whether there are workers of the degree that the system has.
    pub(super) fn has_degree_of(&self, system: &System) -> bool {
        // This one chooses among those that there are, and takes its time for it.
        system.allocation == AllocationKind::Heddle
            || self.counts(system).iter().any(|count| *count > 0)
    }

    /// Whether the system can run here.
    pub(super) fn check(
        &self,
        system: &System,
        counts: &[u32],
        failures: &[(u64, u32, u64)],
    ) -> Result<(), ComparisonError> {
        let (gpus, workers) = (self.cell.gpus, counts.iter().sum::<u32>());
        let taken: u32 = self
            .degrees
            .degree
            .iter()
            .zip(counts)
            .map(|(degree, count)| degree * count)
            .sum();
        let allocation = system.allocation;
        if allocation == AllocationKind::Heddle && self.history.is_empty() {
            let problem = "`heddle` plans for the lengths of an earlier rollout, which is missing; \
                           give one, or another allocation";
            return Err(setting("allocation", problem));
        }
        if taken != gpus && allocation != AllocationKind::Heddle || workers == 0 {
            let problem = format!(
                "`{}` uses {taken} of {gpus} GPUs for {}; take a number of GPUs that it divides, \
                 or another allocation",
                allocation.name(),
                self.cell.model().name
            );
            return Err(setting("allocation", problem));
        }
        match failures.iter().find(|(_, worker, _)| *worker >= workers) {
            Some((_, worker, _)) => {
                let problem = format!(
                    "there is no worker {worker}; {} has workers 0 to {}",
                    system.name,
                    workers - 1
                );
                Err(setting("fail", problem))
            }
            None => Ok(()),
        }
    }
}

impl Degrees {
    /// Leaves out what needs more GPUs than there are.
    fn keep_up_to(&mut self, gpus: u32) {
        let kept = self.degree.partition_point(|degree| *degree <= gpus);
        self.degree.truncate(kept);
        self.profile.truncate(kept);
    }
}

fn setting(field: &'static str, problem: impl Into<String>) -> ComparisonError {
    ComparisonError::Setting {
        field,
        problem: problem.into(),
    }
}
