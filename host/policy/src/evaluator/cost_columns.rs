//! Cost estimates of programs for eviction policies: in columns of their own for policies that
//! answer `retain`, otherwise in the extra columns that a policy asks for.

use treadle_core::estimates::NEVER;
use treadle_core::programs::ProgramColumns;
use treadle_model::{ProgramId, Span};

/// Columns with one row per program; times in milliseconds, with the largest number for what is
/// impossible.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CostColumns {
    /// Expected remaining time of the tool call.
    pub(super) idle_ms: Vec<u64>,
    /// Time within which one in ten of such calls ends.
    pub(super) soonest_ms: Vec<u64>,
    /// The price of waiting for the end of such a call, per end that is reached, with the best time
    /// to stop waiting.
    price_ms: Vec<u64>,
    /// Time to load the cache from host memory.
    pub(super) back_ms: Vec<u64>,
    /// Time to move it.
    pub(super) moved_ms: Vec<u64>,
    /// Time to compute it again.
    pub(super) prefill_ms: Vec<u64>,
    /// Tokens still to be generated, -1 without a prediction.
    pub(super) remaining_tokens: Vec<f32>,
}

impl CostColumns {
    /// The core's estimates, and predictions if the core has none.
    pub(super) fn of(
        programs: &ProgramColumns,
        predicted: impl Fn(ProgramId) -> Option<f64>,
    ) -> Self {
        let costs = &programs.costs;
        // Questions in tests and benchmarks may have no estimates.
        let times = |column: &[Span], without: u64| -> Vec<u64> {
            let rows = 0..programs.len();
            rows.map(|row| column.get(row).map_or(without, |span| millis(*span)))
                .collect()
        };
        let remaining = |(row, program): (usize, &ProgramId)| {
            let known = costs.remaining_tokens.get(row);
            let known = known.filter(|tokens| **tokens >= 0);
            known.map_or_else(
                || predicted(*program).map_or(-1.0, |tokens| tokens as f32),
                |tokens| *tokens as f32,
            )
        };
        Self {
            idle_ms: times(&costs.idle, 0),
            soonest_ms: times(&costs.soonest, 0),
            price_ms: times(&costs.price, 0),
            back_ms: times(&costs.back, u64::MAX),
            moved_ms: times(&costs.moved, u64::MAX),
            prefill_ms: times(&costs.prefill, 0),
            remaining_tokens: programs.program.iter().enumerate().map(remaining).collect(),
        }
    }

    /// The columns at these indices of [`COST_COLUMNS`](treadle_policy_runtime::COST_COLUMNS),
    /// concatenated.
    pub(super) fn extra(&self, named: &[usize]) -> Vec<f32> {
        let mut extra = Vec::with_capacity(named.len() * self.idle_ms.len());
        let number = |ms: &u64| match *ms {
            u64::MAX => f32::INFINITY,
            ms => ms as f32,
        };
        for column in named {
            match column {
                0 => extra.extend(self.idle_ms.iter().map(number)),
                1 => extra.extend(self.soonest_ms.iter().map(number)),
                2 => extra.extend(self.back_ms.iter().map(number)),
                3 => extra.extend(self.moved_ms.iter().map(number)),
                4 => extra.extend(self.prefill_ms.iter().map(number)),
                5 => extra.extend(&self.remaining_tokens),
                _ => extra.extend(self.price_ms.iter().map(number)),
            }
        }
        extra
    }
}

fn millis(span: Span) -> u64 {
    if span == NEVER {
        return u64::MAX;
    }
    span.millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_core::programs::CostEstimates;

    #[test]
    fn columns_are_given_in_the_order_in_which_they_are_named() {
        let ms = |ms: u64| Span(ms * 1_000);
        let programs = ProgramColumns {
            program: vec![ProgramId(1), ProgramId(2), ProgramId(3)],
            costs: Box::new(CostEstimates {
                idle: vec![ms(5), ms(6), NEVER],
                soonest: vec![ms(1), ms(2), ms(3)],
                price: vec![ms(4), ms(4), NEVER],
                back: vec![NEVER, ms(40), NEVER],
                moved: vec![NEVER; 3],
                prefill: vec![ms(7), ms(8), ms(9)],
                remaining_tokens: vec![-1, 12, -1],
            }),
            ..ProgramColumns::default()
        };
        let predicted = |program: ProgramId| (program.0 == 1).then_some(99.5);
        let cost_columns = CostColumns::of(&programs, predicted);
        assert_eq!(cost_columns.back_ms, [u64::MAX, 40, u64::MAX]);
        assert_eq!(
            cost_columns.extra(&[5, 0]),
            [99.5, 12.0, -1.0, 5.0, 6.0, f32::INFINITY]
        );
        assert_eq!(cost_columns.extra(&[6]), [4.0, 4.0, f32::INFINITY]);
        for (at, first) in [1.0, f32::INFINITY, f32::INFINITY, 7.0].iter().enumerate() {
            assert_eq!(cost_columns.extra(&[at + 1]).first(), Some(first));
        }
        assert_eq!(treadle_policy_runtime::COST_COLUMNS.len(), 7);
        assert!(cost_columns.extra(&[]).is_empty());
    }

    #[test]
    fn without_expectations_nothing_can_be_brought_back() {
        let programs = ProgramColumns {
            program: vec![ProgramId(1)],
            ..ProgramColumns::default()
        };
        let cost_columns = CostColumns::of(&programs, |_| None);
        let (never, all) = (f32::INFINITY, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(
            cost_columns.extra(&all),
            [0.0, 0.0, never, never, 0.0, -1.0, 0.0]
        );
    }
}
