//! What was seen of programs, as columns.

use treadle_policy::columns::{ENDED_COLUMN, EXTRA_COLUMNS};
use treadle_scheduler::Observation;

/// A program as it was seen, and what then came.
pub(super) struct Lesson {
    pub(super) seen: Observation,
    pub(super) remaining_tokens: u64,
    pub(super) remaining_tool_ms: u64,
    /// That was all; otherwise it was as much at least.
    pub(super) has_ended: bool,
}

/// Sightings as the columns of the contract.
#[derive(Default)]
pub(super) struct SeenColumns {
    pub(super) group: Vec<u64>,
    pub(super) tokens: Vec<u64>,
    pub(super) output_tokens: Vec<u64>,
    pub(super) steps: Vec<u32>,
    pub(super) tool_ms: Vec<u64>,
    /// All that are known, row by row.
    extra: Vec<[f32; EXTRA_COLUMNS.len()]>,
}

impl SeenColumns {
    /// The extra columns with these indices, one after the other, of the first `rows`.
    pub(super) fn extra(&self, columns: &[usize], rows: usize) -> Vec<f32> {
        let column = |at: &usize| {
            let at = *at;
            self.extra.iter().take(rows).map(move |row| row[at])
        };
        columns.iter().flat_map(column).collect()
    }

    pub(super) fn of_lessons(lessons: &[Lesson]) -> Self {
        let mut columns = Self::of(lessons.iter().map(|lesson| &lesson.seen));
        for (row, lesson) in columns.extra.iter_mut().zip(lessons) {
            row[ENDED_COLUMN] = f32::from(lesson.has_ended);
        }
        columns
    }

    pub(super) fn of<'s>(sightings: impl Iterator<Item = &'s Observation>) -> Self {
        let mut columns = Self::default();
        for seen in sightings {
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
