//! The policies of a rollout, linked natively: the same crates that are built
//! to WebAssembly for the daemon.

use super::columns::{Forecast, Programs, Workers, cached_tokens};
use super::forecasts::Forecasts;
use crate::cluster::{Answered, Answers};
use std::collections::BTreeMap;
use treadle_core::{Core, Purpose, Question, Verdict, Voices};
use treadle_model::{PolicyRef, ProgramId, StepId, WorkerId};
use treadle_plugin::{
    AssignColumns, MigrateColumns, PlacementPolicy, PolicyError, PreemptColumns, PriorityPolicy,
    QueueColumns, RouteColumns,
};

/// A priority policy, whatever its type.
pub trait Priority {
    /// See [`PriorityPolicy::score`].
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError>;
    /// See [`PriorityPolicy::preempt`].
    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<u8>, PolicyError>;
}

impl<P: PriorityPolicy> Priority for P {
    fn score(&mut self, programs: &QueueColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        PriorityPolicy::score(self, programs)
    }

    fn preempt(&mut self, steps: &PreemptColumns<'_>) -> Result<Vec<u8>, PolicyError> {
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
    /// What programs still need; `None` predicts nothing.
    pub forecasts: Option<Forecasts>,
    /// The order at engines; `None` is first come, first served.
    pub priority: Option<Box<dyn Priority>>,
    /// Who is where.
    pub placement: Box<dyn Placement>,
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
        let columns = QueueColumns {
            tokens: &rows.tokens,
            output_tokens: &rows.output_tokens,
            steps: &rows.steps,
            waited_ms: &rows.waited_ms,
            remaining_tokens: &rows.remaining_tokens,
            remaining_tool_s: &rows.remaining_tool_s,
            extra: &[],
        };
        priority.score(&columns).unwrap_or(none)
    }

    fn assign(&mut self, rows: &Programs, workers: &Workers) -> Vec<Option<WorkerId>> {
        let columns = AssignColumns {
            group: &rows.group,
            tokens: &rows.tokens,
            remaining_tokens: &rows.remaining_tokens,
            last_worker: &rows.worker,
            workers: workers.columns(),
            extra: &[],
        };
        let assigned = self.placement.assign(&columns).unwrap_or_default();
        in_rows(&assigned, workers, rows.id.len())
    }

    /// Nothing where the policy leaves a placed program where it is.
    fn route(&mut self, core: &Core, rows: &Programs, workers: &Workers) -> Option<WorkerId> {
        let cached_tokens = cached_tokens(core, *rows.id.first()?, workers);
        let columns = RouteColumns {
            cached_tokens: &cached_tokens,
            tokens: *rows.tokens.first()?,
            workers: workers.columns(),
            extra: &[],
        };
        let scores = self.placement.route(&columns).ok()?;
        // The first of the highest.
        let mut best: Option<(usize, f64)> = None;
        for (row, score) in scores.into_iter().enumerate() {
            if best.is_none_or(|(_, highest)| score > highest) {
                best = Some((row, score));
            }
        }
        workers.id.get(best?.0).copied()
    }

    fn migrate(&mut self, rows: &Programs, workers: &Workers) -> Vec<Option<WorkerId>> {
        let columns = MigrateColumns {
            at_worker: &rows.worker,
            tokens: &rows.tokens,
            remaining_tokens: &rows.remaining_tokens,
            acting: &rows.acting,
            workers: workers.columns(),
            extra: &[],
        };
        let wanted = self.placement.migrate(&columns).unwrap_or_default();
        in_rows(&wanted, workers, rows.id.len())
    }

    fn preempt(&mut self, core: &Core, worker: WorkerId, rows: &Programs) -> Vec<ProgramId> {
        let Some(priority) = &mut self.priority else {
            return Vec::new();
        };
        let now = core.state().now;
        let (mut running, mut waiting) = (BTreeMap::<StepId, _>::new(), Vec::new());
        for step in rows
            .id
            .iter()
            .filter_map(|id| core.state().programs.get(id))
        {
            for id in &step.running {
                let s = &core.state().steps[id];
                if let treadle_core::step::StepState::Running { since, worker: at } = s.state
                    && at == worker
                {
                    let facts = (s.program, f64::from(s.priority), now.since(since).millis());
                    running.insert(*id, facts);
                }
            }
            let priority = |id: &StepId| f64::from(core.state().steps[id].priority);
            waiting.extend(step.waiting.iter().map(priority));
        }
        let score: Vec<f64> = running.values().map(|(_, score, _)| *score).collect();
        let running_ms: Vec<u64> = running.values().map(|(_, _, ms)| *ms).collect();
        let columns = PreemptColumns {
            running_score: &score,
            running_ms: &running_ms,
            waiting_score: &waiting,
        };
        let gives_way = priority.preempt(&columns).unwrap_or_default();
        let marked = running
            .values()
            .zip(gives_way)
            .filter(|(_, mark)| *mark == 1);
        marked.map(|((program, _, _), _)| *program).collect()
    }

    fn verdict(&mut self, core: &Core, question: &Question) -> Verdict {
        let workers = Workers::of(core);
        let rows = Programs::of(core, question, &workers, |program| self.forecast(program));
        let (scores, wished) = match question.purpose {
            Purpose::Route { .. } => (self.scores(&rows), vec![self.route(core, &rows, &workers)]),
            Purpose::Migrate => {
                return moves(&rows, &self.migrate(&rows, &workers), &workers);
            }
            Purpose::Preempt { worker } => {
                let programs = self.preempt(core, worker, &rows);
                let scores = vec![0.0; programs.len()];
                return order(programs, scores, Vec::new());
            }
            _ => (self.scores(&rows), self.assign(&rows, &workers)),
        };
        let mut sorted: Vec<usize> = (0..rows.id.len()).collect();
        sorted.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        order(
            sorted.iter().map(|row| rows.id[*row]).collect(),
            sorted.iter().map(|row| scores[*row]).collect(),
            sorted.iter().map(|row| wished[*row]).collect(),
        )
    }
}

impl Answers for PolicySet {
    fn answer(&mut self, core: &Core, question: &Question, _: u64) -> Answered {
        if let Some(forecasts) = &mut self.forecasts
            && question.purpose == Purpose::Assign
        {
            forecasts.predict(core, &question.programs.program, |_| 0);
        }
        Answered {
            policy: PolicyRef("native".into()),
            verdict: self.verdict(core, question),
            voices: Voices::default(),
        }
    }
}

fn in_rows(wanted: &[u32], workers: &Workers, rows: usize) -> Vec<Option<WorkerId>> {
    let at = |row: usize| workers.id.get(*wanted.get(row)? as usize).copied();
    (0..rows).map(at).collect()
}

/// Those alone that should be elsewhere, ranked by what is to come.
fn moves(rows: &Programs, wanted: &[Option<WorkerId>], workers: &Workers) -> Verdict {
    let leaves = |row: &usize| {
        let at = workers.id.get(rows.worker[*row] as usize);
        wanted[*row].is_some_and(|worker| Some(&worker) != at)
    };
    let moved: Vec<usize> = (0..rows.id.len()).filter(leaves).collect();
    order(
        moved.iter().map(|row| rows.id[*row]).collect(),
        moved
            .iter()
            .map(|row| rows.remaining_tokens[*row])
            .collect(),
        moved.iter().map(|row| wanted[*row]).collect(),
    )
}

fn order(programs: Vec<ProgramId>, scores: Vec<f64>, workers: Vec<Option<WorkerId>>) -> Verdict {
    Verdict::Order {
        programs,
        scores,
        workers,
    }
}
