//! A question's programs as columns in the units of the policy contract. What
//! priority and placement policies are told is built in
//! [`crate::columns`], for rollouts in virtual time too.

use crate::columns;
use treadle_core::{CostEstimates, ProgramColumns};
use treadle_model::ProgramId;
use treadle_plugin::Phase;

/// A prediction policy's forecast of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Tokens still to be generated: the mean.
    pub remaining_tokens: f64,
    /// Their 90th percentile.
    pub remaining_tokens_p90: f64,
    /// Seconds still to be spent in tools.
    pub remaining_tool_s: f64,
}

impl Forecast {
    /// Its form in columns.
    pub(super) fn in_columns(self) -> columns::Forecast {
        columns::Forecast {
            remaining_tokens: self.remaining_tokens,
            remaining_tool_s: self.remaining_tool_s,
        }
    }
}

/// Facts on programs, one row each; all columns have the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rows {
    /// Which program each row is about.
    pub(super) program: Vec<ProgramId>,
    /// Context, in tokens.
    pub(super) tokens: Vec<u64>,
    /// What each does.
    pub(super) phase: Vec<Phase>,
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
            phase: columns::phases_of(programs),
            phase_ms: programs.phase.iter().map(|span| span.millis()).collect(),
            waited_ms: programs.waited.iter().map(|span| span.millis()).collect(),
            steps: programs.steps.clone(),
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.program.len()
    }
}

/// These rows of a question alone, in this order.
pub(super) fn only(programs: &ProgramColumns, rows: &[usize]) -> ProgramColumns {
    fn of<T: Copy>(column: &[T], rows: &[usize]) -> Vec<T> {
        rows.iter().map(|row| column[*row]).collect()
    }
    let costs = &programs.costs;
    // Questions of tests and benchmarks may come without.
    let costs = if costs.idle.is_empty() {
        CostEstimates::default()
    } else {
        CostEstimates {
            idle: of(&costs.idle, rows),
            soonest: of(&costs.soonest, rows),
            price: of(&costs.price, rows),
            back: of(&costs.back, rows),
            moved: of(&costs.moved, rows),
            prefill: of(&costs.prefill, rows),
            remaining_tokens: of(&costs.remaining_tokens, rows),
        }
    };
    ProgramColumns {
        program: of(&programs.program, rows),
        tokens: of(&programs.tokens, rows),
        acting: of(&programs.acting, rows),
        phase: of(&programs.phase, rows),
        waited: of(&programs.waited, rows),
        steps: of(&programs.steps, rows),
        costs: Box::new(costs),
    }
}
