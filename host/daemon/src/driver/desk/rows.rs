//! A question's programs as columns in the units of the policy contract.

use treadle_core::{Core, ProgramColumns};
use treadle_model::{ProgramId, WorkerId};
use treadle_plugin::NOWHERE;

/// What a prediction policy said about a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Tokens still to be generated: the mean.
    pub remaining_tokens: f64,
    /// Their 90th percentile.
    pub remaining_tokens_p90: f64,
    /// Seconds still to be spent in tools.
    pub remaining_tool_s: f64,
}

/// Stands where nothing was predicted.
const UNKNOWN: f64 = -1.0;

/// Facts on programs, one row each; all columns have the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rows {
    /// Which program each row is about.
    pub(super) program: Vec<ProgramId>,
    /// Context, in tokens.
    pub(super) tokens: Vec<u64>,
    /// 1 in a tool call.
    pub(super) acting: Vec<u8>,
    /// 1 with a step waiting or running.
    pub(super) reasoning: Vec<u8>,
    /// Time in the present phase.
    pub(super) phase_ms: Vec<u64>,
    /// Time in the queue.
    pub(super) waited_ms: Vec<u64>,
    /// Steps finished.
    pub(super) steps: Vec<u32>,
}

impl Rows {
    /// The same facts, spans in milliseconds.
    pub(super) fn of(programs: &ProgramColumns) -> Self {
        Self {
            program: programs.program.clone(),
            tokens: programs.tokens.clone(),
            acting: programs.acting.clone(),
            reasoning: programs.acting.iter().map(|acting| 1 - acting).collect(),
            phase_ms: programs.phase.iter().map(|span| span.millis()).collect(),
            waited_ms: programs.waited.iter().map(|span| span.millis()).collect(),
            steps: programs.steps.clone(),
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.program.len()
    }

    /// These rows alone, in this order.
    pub(super) fn only(&self, rows: &[usize]) -> Self {
        fn of<T: Copy>(column: &[T], rows: &[usize]) -> Vec<T> {
            rows.iter().map(|row| column[*row]).collect()
        }
        Self {
            program: of(&self.program, rows),
            tokens: of(&self.tokens, rows),
            acting: of(&self.acting, rows),
            reasoning: of(&self.reasoning, rows),
            phase_ms: of(&self.phase_ms, rows),
            waited_ms: of(&self.waited_ms, rows),
            steps: of(&self.steps, rows),
        }
    }
}

/// What only priority and placement policies are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueueFacts {
    /// Tokens generated so far.
    pub(super) output_tokens: Vec<u64>,
    /// Predicted tokens to come, -1 where unknown.
    pub(super) remaining_tokens: Vec<f64>,
    /// Predicted seconds in tools, -1 where unknown.
    pub(super) remaining_tool_s: Vec<f64>,
    /// Programs with the same prompt have the same number.
    pub(super) group: Vec<u64>,
    /// Row of the worker that held it last.
    pub(super) last_worker: Vec<u32>,
}

impl QueueFacts {
    /// Facts on these programs. `workers` gives rows their meaning.
    pub(super) fn of(
        core: &Core,
        programs: &[ProgramId],
        workers: &WorkerRows,
        forecast: impl Fn(ProgramId) -> Option<Forecast>,
    ) -> Self {
        let mut facts = Self::default();
        for id in programs {
            let program = core.state().programs.get(id);
            let expected = forecast(*id);
            facts
                .output_tokens
                .push(program.map_or(0, |p| p.output_tokens_total));
            facts
                .remaining_tokens
                .push(expected.map_or(UNKNOWN, |f| f.remaining_tokens));
            facts
                .remaining_tool_s
                .push(expected.map_or(UNKNOWN, |f| f.remaining_tool_s));
            let prompt = program.and_then(|p| p.prefix.last());
            // A program without a known prompt is a group of its own.
            facts
                .group
                .push(prompt.map_or(id.0, |segment| segment.hash));
            let last = program.and_then(|p| p.last_worker);
            facts
                .last_worker
                .push(last.map_or(NOWHERE, |worker| workers.row_of(worker)));
        }
        facts
    }
}

/// Healthy workers, one row each, in order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WorkerRows {
    /// Which worker each row is about.
    pub(super) worker: Vec<WorkerId>,
    /// What it holds, 0 where unknown.
    pub(super) capacity_tokens: Vec<u64>,
    /// Tokens in use by the ledger.
    pub(super) used_tokens: Vec<u64>,
    /// Steps running.
    pub(super) running: Vec<u32>,
}

impl WorkerRows {
    /// The workers that may be given programs.
    pub(super) fn of(core: &Core) -> Self {
        let mut rows = Self::default();
        for worker in core.state().workers.values().filter(|w| w.is_healthy()) {
            rows.worker.push(worker.id);
            rows.capacity_tokens
                .push(worker.capacity.tokens.unwrap_or(0));
            rows.used_tokens.push(worker.used_tokens());
            rows.running.push(worker.running_steps);
        }
        rows
    }

    fn row_of(&self, worker: WorkerId) -> u32 {
        self.worker
            .binary_search(&worker)
            .map_or(NOWHERE, |row| row as u32)
    }
}
