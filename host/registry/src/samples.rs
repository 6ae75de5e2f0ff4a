//! Observations of programs as columns.

use treadle_policy::columns::{ENDED_COLUMN, EXTRA_COLUMNS};
use treadle_scheduler::Observation;

/// A training sample: an observation of a program, and its later outcome.
pub(super) struct Sample {
    pub(super) seen: Observation,
    pub(super) remaining_tokens: u64,
    pub(super) remaining_tool_ms: u64,
    /// Whether the remaining lengths are exact; otherwise they are lower limits.
    pub(super) has_ended: bool,
}

/// Observations as the columns of the contract.
#[derive(Default)]
pub(super) struct SampleColumns {
    pub(super) group: Vec<u64>,
    pub(super) tokens: Vec<u64>,
    pub(super) output_tokens: Vec<u64>,
    pub(super) steps: Vec<u32>,
    pub(super) tool_ms: Vec<u64>,
    /// All known extra columns, row by row.
    extra: Vec<[f32; EXTRA_COLUMNS.len()]>,
}

impl SampleColumns {
    /// The extra columns with these indices of the first `rows`, concatenated.
    pub(super) fn extra(&self, columns: &[usize], rows: usize) -> Vec<f32> {
        let column = |at: &usize| {
            let at = *at;
            self.extra.iter().take(rows).map(move |row| row[at])
        };
        columns.iter().flat_map(column).collect()
    }

    pub(super) fn of_samples(samples: &[Sample]) -> Self {
        let mut columns = Self::of(samples.iter().map(|sample| &sample.seen));
        for (row, sample) in columns.extra.iter_mut().zip(samples) {
            row[ENDED_COLUMN] = f32::from(sample.has_ended);
        }
        columns
    }

    pub(super) fn of<'s>(observations: impl Iterator<Item = &'s Observation>) -> Self {
        let mut columns = Self::default();
        for seen in observations {
            columns.group.push(seen.group);
            columns.tokens.push(seen.tokens);
            columns.output_tokens.push(seen.output_tokens);
            columns.steps.push(seen.steps);
            columns.tool_ms.push(seen.tool_ms);
            columns.extra.push(seen.extra);
        }
        columns
    }
}
