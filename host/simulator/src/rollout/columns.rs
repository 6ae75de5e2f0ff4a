//! What policies of rollouts are told, as columns in the units of the contract.

use treadle_core::program::Program;
use treadle_core::{Core, Question};
use treadle_model::{Phase, ProgramId, WorkerId};
use treadle_plugin::{NOWHERE, WorkerColumns};

/// What a prediction policy said about a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Tokens still to be generated: the mean.
    pub remaining_tokens: f64,
    /// Seconds still to be spent in tools.
    pub remaining_tool_s: f64,
}

/// Stands where nothing is known.
const UNKNOWN: f64 = -1.0;

/// Healthy workers, one row each, in order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers {
    pub(super) id: Vec<WorkerId>,
    pub(super) capacity_tokens: Vec<u64>,
    pub(super) used_tokens: Vec<u64>,
    pub(super) running: Vec<u32>,
}

impl Workers {
    pub(super) fn of(core: &Core) -> Self {
        let mut rows = Self::default();
        for worker in core.state().workers.values().filter(|w| w.is_healthy()) {
            rows.id.push(worker.id);
            let capacity_tokens = worker.capacity.tokens.unwrap_or(0);
            rows.capacity_tokens.push(capacity_tokens);
            rows.used_tokens.push(worker.used_tokens());
            rows.running.push(worker.running_steps);
        }
        rows
    }

    pub(super) fn row_of(&self, worker: WorkerId) -> u32 {
        let row = self.id.binary_search(&worker);
        row.map_or(NOWHERE, |row| row as u32)
    }

    pub(super) fn columns(&self) -> WorkerColumns<'_> {
        WorkerColumns {
            capacity_tokens: &self.capacity_tokens,
            used_tokens: &self.used_tokens,
            running: &self.running,
        }
    }
}

/// Facts on programs, one row each.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    pub(super) id: Vec<ProgramId>,
    pub(super) group: Vec<u64>,
    pub(super) tokens: Vec<u64>,
    pub(super) output_tokens: Vec<u64>,
    pub(super) steps: Vec<u32>,
    pub(super) waited_ms: Vec<u64>,
    pub(super) acting: Vec<u8>,
    pub(super) worker: Vec<u32>,
    pub(super) remaining_tokens: Vec<f64>,
    pub(super) remaining_tool_s: Vec<f64>,
}

impl Programs {
    /// The programs of a question.
    pub(super) fn of(
        core: &Core,
        question: &Question,
        workers: &Workers,
        forecast: impl Fn(ProgramId) -> Option<Forecast>,
    ) -> Self {
        let mut rows = Self::default();
        for (row, id) in question.programs.program.iter().enumerate() {
            let Some(program) = core.state().programs.get(id) else {
                continue;
            };
            let expected = forecast(*id);
            rows.id.push(*id);
            rows.group.push(group_of(program));
            rows.tokens.push(question.programs.tokens[row]);
            rows.output_tokens.push(program.output_tokens_total);
            rows.steps.push(program.steps_finished);
            rows.waited_ms.push(question.programs.waited[row].millis());
            rows.acting.push(u8::from(program.phase == Phase::Acting));
            let last = program.last_worker;
            rows.worker
                .push(last.map_or(NOWHERE, |worker| workers.row_of(worker)));
            rows.remaining_tokens
                .push(expected.map_or(UNKNOWN, |f| f.remaining_tokens));
            rows.remaining_tool_s
                .push(expected.map_or(UNKNOWN, |f| f.remaining_tool_s));
        }
        rows
    }
}

/// A number that programs with the same prompt share.
pub(super) fn group_of(program: &Program) -> u64 {
    // A program without a known prompt is a group of its own.
    program
        .prefix
        .last()
        .map_or(program.id.0, |segment| segment.hash)
}

/// Tokens of a program's context that each worker is believed to hold: all of
/// it where it was last, the shared front where others share it.
pub(super) fn cached_tokens(core: &Core, program: ProgramId, workers: &Workers) -> Vec<u64> {
    let Some(program) = core.state().programs.get(&program) else {
        return vec![0; workers.id.len()];
    };
    let shared = |id: &WorkerId| -> u64 {
        let worker = core.state().workers.get(id);
        let held = program
            .prefix
            .iter()
            .take_while(|segment| worker.is_some_and(|w| w.shared.contains_key(&segment.hash)));
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
