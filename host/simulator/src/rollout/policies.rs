//! The policies of a rollout, linked natively: the crates that the daemon runs as WebAssembly.

use super::columns::{Forecast, Programs, Steps, Workers, cached_tokens, first_of_highest};
use super::forecasts::Forecasts;
use crate::cluster::{Answered, Answers};
use treadle_core::Core;
use treadle_core::programs::{Attribution, PolicyAnswer, Purpose, Question};
use treadle_model::{PolicyRef, ProgramId, WorkerId};
use treadle_plugin::{
    AssignColumns, MigrateColumns, PlacementPolicy, PolicyError, PreemptColumns, PriorityPolicy,
    QueueColumns, RouteColumns,
};
use treadle_policy::native::NativeEviction;

/// A priority policy, whatever its type.
pub trait Priority {
    /// See [`PriorityPolicy::score`].
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError>;
    /// See [`PriorityPolicy::preempt`].
    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError>;
}

impl<P: PriorityPolicy> Priority for P {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        PriorityPolicy::score(self, programs)
    }

    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        PriorityPolicy::preempt(self, steps)
    }
}

/// A placement policy, whatever its type.
pub trait Placement {
    /// See [`PlacementPolicy::assign`].
    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError>;
    /// See [`PlacementPolicy::route`].
    fn route(&mut self, step: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError>;
    /// See [`PlacementPolicy::migrate`].
    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError>;
}

impl<P: PlacementPolicy> Placement for P {
    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        PlacementPolicy::assign(self, programs)
    }

    fn route(&mut self, step: &RouteColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        PlacementPolicy::route(self, step)
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        PlacementPolicy::migrate(self, programs)
    }
}

/// The policies of one rollout.
pub struct PolicySet {
    /// Predictions; `None` predicts nothing.
    pub forecasts: Option<Forecasts>,
    /// The order of steps at engines; `None` is first come, first served.
    pub priority: Option<Box<dyn Priority>>,
    /// The placement of programs.
    pub placement: Box<dyn Placement>,
    /// The programs to pause when memory is short.
    pub eviction: NativeEviction,
}

impl PolicySet {
    fn forecast(&self, program: ProgramId) -> Option<Forecast> {
        self.forecasts.as_ref()?.of(program)
    }

    fn scores(&mut self, rows: &Programs) -> Vec<f64> {
        let none = vec![0.0; rows.id.len()];
        let Some(priority) = &mut self.priority else {
            return none;
        };
        priority.score(&rows.queue()).unwrap_or(none)
    }

    fn assign(&mut self, rows: &Programs, workers: &Workers) -> Vec<Option<WorkerId>> {
        let assigned = self.placement.assign(&rows.assign(workers));
        let assigned = assigned.unwrap_or_default();
        let at = |row: usize| workers.at(*assigned.get(row)?);
        (0..rows.id.len()).map(at).collect()
    }

    /// The worker for a step; `None` keeps a placed program where it is.
    fn route(&mut self, core: &Core, rows: &Programs, workers: &Workers) -> Option<WorkerId> {
        let cached_tokens = cached_tokens(core, *rows.id.first()?, workers);
        let columns = rows.route(&cached_tokens, workers);
        let scores = self.placement.route(&columns).ok()?;
        workers.id.get(first_of_highest(&scores)?).copied()
    }

    /// The programs that should move, ranked by their predicted rest.
    fn migrate(&mut self, rows: &Programs, workers: &Workers) -> PolicyAnswer {
        let wanted = self.placement.migrate(&rows.migrate(workers));
        let moved = rows.moves(&wanted.unwrap_or_default(), workers);
        let rank = |(row, _): &(usize, WorkerId)| rows.remaining_tokens[*row];
        order(
            moved.iter().map(|(row, _)| rows.id[*row]).collect(),
            moved.iter().map(rank).collect(),
            moved.iter().map(|(_, to)| Some(*to)).collect(),
            Vec::new(),
        )
    }

    fn preempt(&mut self, core: &Core, worker: WorkerId, rows: &Programs) -> Vec<ProgramId> {
        let Some(priority) = &mut self.priority else {
            return Vec::new();
        };
        let steps = Steps::of(core, worker, &rows.id);
        let gives_way = priority.preempt(&steps.columns()).unwrap_or_default();
        steps.giving_way(&gives_way)
    }

    fn choose(&mut self, core: &Core, question: &Question) -> PolicyAnswer {
        let workers = Workers::of(core);
        let rows = Programs::of(core, &question.programs, &workers, |program| {
            self.forecast(program)
        });
        let (scores, wished) = match question.purpose {
            Purpose::Route { .. } => (self.scores(&rows), vec![self.route(core, &rows, &workers)]),
            Purpose::Migrate => return self.migrate(&rows, &workers),
            Purpose::Preempt { worker } => {
                let programs = self.preempt(core, worker, &rows);
                let scores = vec![0.0; programs.len()];
                return order(programs, scores, Vec::new(), Vec::new());
            }
            Purpose::Restore => (self.scores(&rows), self.assign(&rows, &workers)),
            Purpose::Weigh { .. } | Purpose::Pause { .. } | Purpose::Retain { .. } => {
                return self.eviction.answer(question);
            }
        };
        let mut sorted: Vec<usize> = (0..rows.id.len()).collect();
        sorted.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        order(
            sorted.iter().map(|row| rows.id[*row]).collect(),
            sorted.iter().map(|row| scores[*row]).collect(),
            sorted.iter().map(|row| wished[*row]).collect(),
            // Saturates; only unknown values are below 0.
            sorted
                .iter()
                .map(|row| rows.remaining_tokens[*row] as i64)
                .collect(),
        )
    }
}

impl Answers for PolicySet {
    fn answer(&mut self, core: &Core, question: &Question, _: u64) -> Answered {
        if let Some(forecasts) = &mut self.forecasts
            && question.purpose == Purpose::Restore
        {
            forecasts.predict(core, &question.programs.program, false, |_| 0);
        }
        Answered {
            policy: PolicyRef("native".into()),
            answer: self.choose(core, question),
            attribution: Attribution::default(),
        }
    }
}

fn order(
    programs: Vec<ProgramId>,
    scores: Vec<f64>,
    workers: Vec<Option<WorkerId>>,
    remaining_tokens: Vec<i64>,
) -> PolicyAnswer {
    PolicyAnswer::Order {
        programs,
        scores,
        workers,
        remaining_tokens,
    }
}
