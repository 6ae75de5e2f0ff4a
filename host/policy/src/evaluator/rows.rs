//! A question's programs in the units of the policy contract. Columns for priority and placement
//! policies are built in [`crate::columns`], which simulated rollouts use too.

use crate::columns;
use treadle_core::programs::{CostEstimates, ProgramColumns, Purpose};
use treadle_model::Span;
use treadle_plugin::Phase;

/// A prediction policy's forecast of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Mean of the tokens still to be generated.
    pub remaining_tokens: f64,
    /// Their 90th percentile.
    pub remaining_tokens_p90: f64,
    /// Seconds still to be spent in tools.
    pub remaining_tool_s: f64,
}

impl Forecast {
    /// Its form for columns.
    pub(super) fn in_columns(self) -> columns::Forecast {
        columns::Forecast {
            remaining_tokens: self.remaining_tokens,
            remaining_tool_s: self.remaining_tool_s,
        }
    }
}

/// Columns of a question that have other units in the contract, as far as its purpose needs them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Converted {
    /// The phase of each program.
    pub(super) phase: Vec<Phase>,
    /// Time in the present phase.
    pub(super) phase_ms: Vec<u64>,
    /// Time in the queue.
    pub(super) waited_ms: Vec<u64>,
}

impl Converted {
    /// The columns that an eviction policy gets for this purpose.
    pub(super) fn of(purpose: Purpose, programs: &ProgramColumns) -> Self {
        let phase = || columns::phases_of(programs);
        let millis = |spans: &[Span]| spans.iter().map(|span| span.millis()).collect();
        match purpose {
            Purpose::Pause { .. } => Self {
                phase: phase(),
                phase_ms: millis(&programs.phase),
                ..Self::default()
            },
            Purpose::Restore => Self {
                phase: phase(),
                waited_ms: millis(&programs.waited),
                ..Self::default()
            },
            Purpose::Weigh { .. } | Purpose::Retain { .. } => Self {
                phase_ms: millis(&programs.phase),
                ..Self::default()
            },
            Purpose::Route { .. } | Purpose::Migrate | Purpose::Preempt { .. } => Self::default(),
        }
    }
}

/// Only these rows of a question, in this order.
pub(super) fn only(programs: &ProgramColumns, rows: &[usize]) -> ProgramColumns {
    fn of<T: Copy>(column: &[T], rows: &[usize]) -> Vec<T> {
        rows.iter().map(|row| column[*row]).collect()
    }
    let costs = &programs.costs;
    // Questions in tests and benchmarks may have no estimates.
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
