//! The best units for the first candidates (`DPArrange`, Algorithms 3 and 4), for every number of
//! them: the table for all contains that for each prefix.

mod chunks;
mod plain;
mod steps;

use crate::queue::{Choice, Queue};

/// Maximum number of a table's entries that are evaluated, so that a call does not take too long.
const WORK_MAX: usize = 1 << 18;

/// Arranges prefixes of a queue's candidates, which all fit with their smallest options.
#[derive(Debug)]
pub(crate) enum Arrange<'q> {
    /// Interchangeable units.
    Plain(plain::Table<'q>),
    /// Chunks of devices.
    Chunks(chunks::Table<'q>),
    /// Step by step, without a table.
    Steps(steps::Steps<'q>),
}

impl<'q> Arrange<'q> {
    pub(crate) fn new(queue: &'q Queue) -> Self {
        let (candidates, free) = (&queue.waiting[..queue.candidates], queue.free);
        let steps = || Self::Steps(steps::Steps::new(candidates, free));
        match queue.chunks {
            Some(chunks) => {
                let table = chunks::Table::new(candidates, chunks, WORK_MAX);
                table.map_or_else(steps, Self::Chunks)
            }
            None if steps::are_exact(candidates) => steps(),
            None => {
                let table = plain::Table::new(candidates, free.units() as usize, WORK_MAX);
                table.map_or_else(steps, Self::Plain)
            }
        }
    }

    /// The best choices for the first `head` candidates.
    pub(crate) fn head(&self, head: usize) -> Vec<Choice> {
        match self {
            Self::Plain(table) => table.head(head),
            Self::Chunks(table) => table.head(head),
            Self::Steps(steps) => steps.head(head),
        }
    }
}
