//! The best units for the first candidates (`DPArrange`, Algorithms 3 and 4), for every number of
//! them: the table of all has that of each head in it.

mod chunks;
mod plain;
mod steps;

use crate::queue::{Choice, Queue};

/// Entries of a table that are looked at, at most; above that a call would take too long.
const WORK_MAX: usize = 1 << 18;

/// Arranges the heads of the candidates of one queue, which all fit with their least.
#[derive(Debug)]
pub(crate) enum Arrange<'q> {
    /// Units that are alike.
    Plain(plain::Table<'q>),
    /// Chunks of devices.
    Chunks(chunks::Table<'q>),
    /// Step by step.
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

    /// What the first so many candidates best start with.
    pub(crate) fn head(&self, head: usize) -> Vec<Choice> {
        match self {
            Self::Plain(table) => table.head(head),
            Self::Chunks(table) => table.head(head),
            Self::Steps(steps) => steps.head(head),
        }
    }
}
