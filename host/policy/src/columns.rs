//! The columns of rollout policies, in the units of the contract. Simulated rollouts build their
//! questions here too, so that a policy sees the same in both.

use std::collections::{BTreeMap, BTreeSet};
use treadle_core::Core;
use treadle_core::programs::ProgramColumns;
use treadle_core::programs::{Program, StepState, score_of};
use treadle_model::{Phase, ProgramId, Span, StepId, WorkerId, endpoint_of};
use treadle_plugin::{
    AssignColumns, MigrateColumns, NO_CLASS, NO_GROUP, NOWHERE, PreemptColumns, QueueColumns,
    RouteColumns, WorkerColumns,
};

/// A prediction policy's forecast of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Mean of the tokens still to be generated.
    pub remaining_tokens: f64,
    /// Seconds still to be spent in tools.
    pub remaining_tool_s: f64,
}

/// The value of unknown entries.
const UNKNOWN: f64 = -1.0;

/// The extra columns of programs. A prediction policy gets those that it asks for.
pub use treadle_policy_runtime::{ENDED_COLUMN, PROGRAM_COLUMNS as EXTRA_COLUMNS};

/// A program's value in each of [`EXTRA_COLUMNS`]; -1 if unknown. `returned` is whether the tool
/// call after its last step has returned.
pub fn extra_columns(program: &Program, returned: bool) -> [f32; EXTRA_COLUMNS.len()] {
    let last_output_tokens = match program.steps_finished {
        0 => -1.0,
        _ => program.last_output_tokens as f32,
    };
    [
        program.first_prompt_tokens as f32,
        last_output_tokens,
        program.last_action_ok.map_or(-1.0, f32::from),
        program.actions_failed as f32,
        if program.steps_finished == 0 {
            -1.0
        } else {
            f32::from(returned)
        },
        -1.0,
    ]
}

/// Workers that take programs, one row each, in order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workers {
    /// Which worker each row is about.
    pub id: Vec<WorkerId>,
    /// Capacity in tokens; 0 if unknown.
    pub capacity_tokens: Vec<u64>,
    /// Tokens in use by the ledger.
    pub used_tokens: Vec<u64>,
    /// Steps running.
    pub running: Vec<u32>,
    /// Microseconds per token of a single step, -1 if unknown.
    pub token_us: Vec<f64>,
    /// Microseconds per token that each further step adds, -1 if unknown.
    pub step_us: Vec<f64>,
    /// Microseconds per prompt token, -1 if unknown.
    pub prefill_us: Vec<f64>,
    /// Number of the class of hardware, [`NO_CLASS`] without one.
    pub hardware_class: Vec<u32>,
    /// Number of the endpoint whose ranks step together, [`NO_GROUP`] without several.
    pub lockstep_group: Vec<u32>,
    /// The classes of all workers, also of those that get no programs now; a class's number is its
    /// place.
    classes: Vec<Box<str>>,
}

impl Workers {
    /// The workers that may get programs.
    pub fn of(core: &Core) -> Self {
        let workers = &core.programs().workers;
        let classes = workers.values().filter_map(|w| w.class.clone());
        let classes: BTreeSet<Box<str>> = classes.collect();
        let mut rows = Self {
            classes: classes.into_iter().collect(),
            ..Self::default()
        };
        for worker in workers.values().filter(|w| w.takes_programs()) {
            rows.id.push(worker.id);
            let capacity_tokens = worker.capacity.tokens.unwrap_or(0);
            rows.capacity_tokens.push(capacity_tokens);
            rows.used_tokens.push(worker.used_tokens());
            rows.running.push(worker.running_steps);
            let time = core.programs().decode_time_of(worker);
            let micros = |span: Span| span.micros() as f64;
            rows.token_us
                .push(time.map_or(UNKNOWN, |time| micros(time.alone)));
            let further = time.and_then(|time| time.further);
            rows.step_us.push(further.map_or(UNKNOWN, micros));
            let prefill = core.programs().prefill_speed_of(worker);
            rows.prefill_us
                .push(prefill.map_or(UNKNOWN, |speed| 1e6 / speed as f64));
            let class = rows.number_of(worker.class.as_deref());
            rows.hardware_class.push(class);
        }
        let rows_of = |id: &WorkerId| workers.get(id).map(|w| &*w.url);
        rows.lockstep_group = lockstep_groups(rows.id.iter().filter_map(rows_of));
        rows
    }

    /// The number of a class; [`NO_CLASS`] if no worker is of it.
    fn number_of(&self, class: Option<&str>) -> u32 {
        let place = class.and_then(|class| {
            let known = self.classes.binary_search_by(|known| (**known).cmp(class));
            known.ok()
        });
        place.map_or(NO_CLASS, |place| place as u32)
    }

    /// A worker's row, or [`NOWHERE`].
    pub fn row_of(&self, worker: WorkerId) -> u32 {
        let row = self.id.binary_search(&worker);
        row.map_or(NOWHERE, |row| row as u32)
    }

    /// The worker of a row of an answer.
    pub fn at(&self, row: u32) -> Option<WorkerId> {
        self.id.get(row as usize).copied()
    }

    /// The columns of the contract.
    pub fn columns(&self) -> WorkerColumns<'_> {
        WorkerColumns {
            capacity_tokens: &self.capacity_tokens,
            used_tokens: &self.used_tokens,
            running: &self.running,
            token_us: &self.token_us,
            step_us: &self.step_us,
            prefill_us: &self.prefill_us,
            hardware_class: &self.hardware_class,
            lockstep_group: &self.lockstep_group,
        }
    }
}

/// Numbers the endpoints that have several ranks among these URLs.
fn lockstep_groups<'a>(urls: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let endpoints: Vec<Option<&str>> = urls
        .map(|url| {
            let (endpoint, rank) = endpoint_of(url);
            rank.map(|_| endpoint)
        })
        .collect();
    let mut ranks: BTreeMap<&str, u32> = BTreeMap::new();
    for endpoint in endpoints.iter().flatten() {
        *ranks.entry(endpoint).or_default() += 1;
    }
    let several = ranks.into_iter().filter(|(_, ranks)| *ranks > 1);
    let numbers: BTreeMap<&str, u32> = several.map(|(endpoint, _)| endpoint).zip(0..).collect();
    let number = |endpoint: Option<&str>| numbers.get(endpoint?).copied();
    let numbered = endpoints.into_iter().map(number);
    numbered.map(|number| number.unwrap_or(NO_GROUP)).collect()
}

/// Data on programs, one row each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Programs {
    /// Which program each row is about.
    pub id: Vec<ProgramId>,
    /// A number shared by the programs of one group.
    pub group: Vec<u64>,
    /// Context that a placement must hold, in tokens.
    pub tokens: Vec<u64>,
    /// Tokens generated so far.
    pub output_tokens: Vec<u64>,
    /// Steps finished.
    pub steps: Vec<u32>,
    /// Time that the oldest waiting step has waited.
    pub waited_ms: Vec<u64>,
    /// The phase of each.
    pub phase: Vec<treadle_plugin::Phase>,
    /// Row of the worker where it was last placed.
    pub worker: Vec<u32>,
    /// Growth of its job's contexts per generated token, -1 if unknown.
    pub growth: Vec<f64>,
    /// Microseconds in tools per generated token of its job, -1 if unknown.
    pub tool_us: Vec<f64>,
    /// Number of the class of hardware that it prefers, [`NO_CLASS`] without one.
    pub preferred_class: Vec<u32>,
    /// Predicted remaining tokens, -1 if unknown.
    pub remaining_tokens: Vec<f64>,
    /// Predicted remaining seconds in tools, -1 if unknown.
    pub remaining_tool_s: Vec<f64>,
}

impl Programs {
    /// The programs of a question, in its order.
    pub fn of(
        core: &Core,
        question: &ProgramColumns,
        workers: &Workers,
        forecast: impl Fn(ProgramId) -> Option<Forecast>,
    ) -> Self {
        let mut rows = Self::default();
        for (row, id) in question.program.iter().enumerate() {
            let program = core.programs().live.get(id);
            let expected = forecast(*id);
            let last = program.and_then(|p| p.last_worker);
            rows.id.push(*id);
            rows.group.push(program.map_or(id.0, group_of));
            rows.tokens.push(question.tokens[row]);
            rows.output_tokens
                .push(program.map_or(0, |p| p.output_tokens_total));
            rows.steps.push(program.map_or(0, |p| p.steps_finished));
            rows.waited_ms.push(question.waited[row].millis());
            let acts = program.is_some_and(|p| p.phase == Phase::Acting);
            rows.phase.push(phase_of(acts));
            rows.worker
                .push(last.map_or(NOWHERE, |worker| workers.row_of(worker)));
            let class = program.and_then(|p| p.class.as_deref());
            rows.preferred_class.push(workers.number_of(class));
            let habits = program.and_then(|p| core.programs().estimates.jobs().get(&p.job));
            let habits = habits.and_then(treadle_core::estimates::JobStatistics::habits);
            rows.growth
                .push(habits.map_or(UNKNOWN, |habits| habits.growth));
            rows.tool_us
                .push(habits.map_or(UNKNOWN, |habits| habits.tool_us));
            rows.remaining_tokens
                .push(expected.map_or(UNKNOWN, |f| f.remaining_tokens));
            rows.remaining_tool_s
                .push(expected.map_or(UNKNOWN, |f| f.remaining_tool_s));
        }
        rows
    }

    /// Columns for [`treadle_plugin::PriorityPolicy::score`].
    pub fn queue(&self) -> QueueColumns<'_> {
        QueueColumns {
            tokens: &self.tokens,
            output_tokens: &self.output_tokens,
            steps: &self.steps,
            waited_ms: &self.waited_ms,
            remaining_tokens: &self.remaining_tokens,
            remaining_tool_s: &self.remaining_tool_s,
            extra: &[],
        }
    }

    /// Columns for [`treadle_plugin::PlacementPolicy::assign`].
    pub fn assign<'a>(&'a self, workers: &'a Workers) -> AssignColumns<'a> {
        AssignColumns {
            group: &self.group,
            tokens: &self.tokens,
            remaining_tokens: &self.remaining_tokens,
            last_worker: &self.worker,
            growth: &self.growth,
            tool_us: &self.tool_us,
            preferred_class: &self.preferred_class,
            workers: workers.columns(),
            extra: &[],
        }
    }

    /// Columns for [`treadle_plugin::PlacementPolicy::route`], of the first row.
    pub fn route<'a>(&'a self, cached_tokens: &'a [u64], workers: &'a Workers) -> RouteColumns<'a> {
        RouteColumns {
            cached_tokens,
            tokens: self.tokens.first().copied().unwrap_or(0),
            workers: workers.columns(),
            extra: &[],
        }
    }

    /// Columns for [`treadle_plugin::PlacementPolicy::migrate`].
    pub fn migrate<'a>(&'a self, workers: &'a Workers) -> MigrateColumns<'a> {
        MigrateColumns {
            at_worker: &self.worker,
            tokens: &self.tokens,
            remaining_tokens: &self.remaining_tokens,
            phase: &self.phase,
            growth: &self.growth,
            tool_us: &self.tool_us,
            preferred_class: &self.preferred_class,
            workers: workers.columns(),
            extra: &[],
        }
    }

    /// Rows of programs that should be on another worker, with that worker, from the answer of
    /// [`treadle_plugin::PlacementPolicy::migrate`].
    pub fn moves(&self, wanted: &[u32], workers: &Workers) -> Vec<(usize, WorkerId)> {
        let to = |(row, wanted): (usize, &u32)| {
            let leaves = self.worker.get(row).is_some_and(|at| at != wanted);
            let to = workers.at(*wanted).filter(|_| leaves);
            to.map(|to| (row, to))
        };
        wanted.iter().enumerate().filter_map(to).collect()
    }
}

/// The phase of a program, by whether it acts.
pub fn phase_of(acts: bool) -> treadle_plugin::Phase {
    if acts {
        treadle_plugin::Phase::Acting
    } else {
        treadle_plugin::Phase::Reasoning
    }
}

/// The phases of a question's programs.
pub fn phases_of(programs: &ProgramColumns) -> Vec<treadle_plugin::Phase> {
    let acting = programs.acting.iter();
    acting.map(|acting| phase_of(*acting != 0)).collect()
}

/// Row of the first of the highest scores.
pub fn first_of_highest(scores: &[f64]) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (row, score) in scores.iter().enumerate() {
        if best.is_none_or(|(_, highest)| *score > highest) {
            best = Some((row, *score));
        }
    }
    best.map(|(row, _)| row)
}

/// The steps that a worker runs, and those that wait for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    program: Vec<ProgramId>,
    running_score: Vec<f64>,
    running_ms: Vec<u64>,
    waiting_score: Vec<f64>,
    /// The program of the most urgent waiting step.
    pub most_urgent: Option<ProgramId>,
}

impl Steps {
    /// The steps of these programs.
    pub fn of(core: &Core, worker: WorkerId, programs: &[ProgramId]) -> Self {
        let (state, mut steps) = (core.programs(), Self::default());
        let mut running: Vec<(StepId, u64)> = Vec::new();
        let mut highest = f64::NEG_INFINITY;
        for program in programs.iter().filter_map(|id| state.live.get(id)) {
            for id in &program.running {
                if let StepState::Running { since, worker: at } = state.steps[id].state
                    && at == worker
                {
                    running.push((*id, state.now.since(since).millis()));
                }
            }
            for id in &program.waiting {
                let score = score_of(state.steps[id].priority);
                steps.waiting_score.push(score);
                if score > highest {
                    (highest, steps.most_urgent) = (score, Some(program.id));
                }
            }
        }
        running.sort_unstable();
        for (id, ms) in running {
            let step = &state.steps[&id];
            steps.program.push(step.program);
            steps.running_score.push(score_of(step.priority));
            steps.running_ms.push(ms);
        }
        steps
    }

    /// Columns for [`treadle_plugin::PriorityPolicy::preempt`].
    pub fn columns(&self) -> PreemptColumns<'_> {
        PreemptColumns {
            running_score: &self.running_score,
            running_ms: &self.running_ms,
            waiting_score: &self.waiting_score,
        }
    }

    /// Programs with marked steps, the least urgent first.
    pub fn giving_way(&self, marks: &[bool]) -> Vec<ProgramId> {
        let marked = |row: &usize| marks.get(*row) == Some(&true);
        let mut rows: Vec<usize> = (0..self.program.len()).filter(marked).collect();
        rows.sort_by(|a, b| self.running_score[*a].total_cmp(&self.running_score[*b]));
        rows.into_iter().map(|row| self.program[row]).collect()
    }
}

/// A number shared by the programs of one group.
pub fn group_of(program: &Program) -> u64 {
    // A program without a named group and a known prompt is a group of its own.
    program.group.unwrap_or(program.id.0)
}

/// Estimated tokens of a program's context in each worker's cache: all of it where it was last
/// placed, otherwise the shared prefix.
pub fn cached_tokens(core: &Core, program: ProgramId, workers: &Workers) -> Vec<u64> {
    let Some(program) = core.programs().live.get(&program) else {
        return vec![0; workers.id.len()];
    };
    let shared = |id: &WorkerId| -> u64 {
        let worker = core.programs().workers.get(id);
        let held = program.prefix.iter().take_while(|segment| {
            worker.is_some_and(|w| w.ledger.shared().contains_key(&segment.hash))
        });
        held.map(|segment| segment.tokens).sum()
    };
    let held = |id: &WorkerId| {
        if program.last_worker == Some(*id) && program.steps_finished > 0 {
            program.context_tokens
        } else {
            shared(id)
        }
    };
    workers.id.iter().map(held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_endpoint_have_one_number() {
        let urls = [
            "http://b:1#0",
            "http://a",
            "http://b:1#1",
            "http://c#0",
            "http://a:2#0",
            "http://a:2/#3",
        ];
        let groups = lockstep_groups(urls.into_iter());
        assert_eq!(groups, [1, NO_GROUP, 1, NO_GROUP, 0, 0], "c has one rank");
    }
}
