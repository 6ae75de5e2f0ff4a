//! Interchangeable units: how many each candidate gets beyond its smallest option.

use crate::queue::{Choice, Waiting};

/// For each prefix of the candidates, and each number of additional units, the least sum of run
/// times with at most this many.
#[derive(Debug)]
pub(crate) struct Table<'q> {
    candidates: &'q [Waiting],
    /// The rows of the table, one after the other.
    sums_us: Vec<u64>,
    /// Start of each prefix's row; one more entry than prefixes.
    starts: Vec<usize>,
}

impl<'q> Table<'q> {
    /// `None` if more than `work_max` entries would be evaluated.
    pub(crate) fn new(candidates: &'q [Waiting], units: usize, work_max: usize) -> Option<Self> {
        let widths = widths(candidates, units, work_max)?;
        let mut starts = vec![0];
        for width in widths {
            starts.push(starts[starts.len() - 1] + width);
        }
        let mut table = Self {
            candidates,
            sums_us: vec![0; starts[starts.len() - 1]],
            starts,
        };
        for (head, waiting) in candidates.iter().enumerate() {
            let (before, row) = table.sums_us.split_at_mut(table.starts[head + 1]);
            let before = &before[table.starts[head]..];
            let width = table.starts[head + 2] - table.starts[head + 1];
            fill(before, &mut row[..width], &waiting.choices);
        }
        Some(table)
    }

    /// The best choices for the first `head` candidates, traced back from all units. Of equally
    /// good choices those with the fewest units.
    pub(crate) fn head(&self, head: usize) -> Vec<Choice> {
        let mut started: Vec<Choice> = Vec::with_capacity(head);
        let mut more = self.row(head).len() - 1;
        for at in (0..head).rev() {
            let (row, before) = (self.row(at + 1), self.row(at));
            let sum_us = row[more.min(row.len() - 1)];
            let waiting = &self.candidates[at];
            for choice in &waiting.choices {
                let beyond = (choice.units - waiting.least().units) as usize;
                let Some(left) = more.checked_sub(beyond) else {
                    break;
                };
                if before[left.min(before.len() - 1)] + choice.us == sum_us {
                    started.push(*choice);
                    more = left;
                    break;
                }
            }
        }
        started.reverse();
        started
    }

    fn row(&self, head: usize) -> &[u64] {
        &self.sums_us[self.starts[head]..self.starts[head + 1]]
    }
}

/// Number of entries of each prefix's row: the units left beyond the smallest options, but not more
/// than the prefix can use. Beyond that the last entry applies.
fn widths(candidates: &[Waiting], units: usize, work_max: usize) -> Option<Vec<usize>> {
    let (mut left, mut usable, mut work) = (units, 0_usize, 0_usize);
    let mut widths = vec![1];
    for waiting in candidates {
        let least = waiting.least().units as usize;
        let most = waiting.choices[waiting.choices.len() - 1].units as usize;
        left = left.checked_sub(least)?;
        usable = usable.saturating_add(most - least);
        let width = left.min(usable) + 1;
        work = work.saturating_add(width.saturating_mul(waiting.choices.len()));
        if work > work_max {
            return None;
        }
        widths.push(width);
    }
    Some(widths)
}

/// The row of a prefix, from that of the prefix without its last candidate.
fn fill(before: &[u64], row: &mut [u64], choices: &[Choice]) {
    let Some((least, others)) = choices.split_first() else {
        return;
    };
    let enough = before[before.len() - 1];
    let both = row.len().min(before.len());
    for (sum_us, before) in row[..both].iter_mut().zip(before) {
        *sum_us = before + least.us;
    }
    row[both..].fill(enough + least.us);
    for choice in others {
        let Some(row) = row.get_mut((choice.units - least.units) as usize..) else {
            break;
        };
        let (of_before, beyond) = row.split_at_mut(row.len().min(before.len()));
        for (sum_us, before) in of_before.iter_mut().zip(before) {
            *sum_us = (*sum_us).min(before + choice.us);
        }
        for sum_us in beyond {
            *sum_us = (*sum_us).min(enough + choice.us);
        }
    }
}
