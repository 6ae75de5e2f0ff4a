//! Estimates when actions that do not start now will be done (Algorithm 2).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::queue::{Choice, Queue, Waiting};

/// Times at which units become free, and their numbers; the earliest first.
type Ends = BinaryHeap<Reverse<(u64, u32)>>;

/// Estimates for the queue of one pool.
#[derive(Debug)]
pub(crate) struct Estimate<'q> {
    queue: &'q Queue,
    depth: usize,
    /// Total units of the pool.
    units: u64,
    /// The ends of running actions, kept to reuse the allocation.
    ends: Vec<Reverse<(u64, u32)>>,
}

impl<'q> Estimate<'q> {
    pub(crate) fn new(queue: &'q Queue, depth: usize) -> Self {
        let running = queue.running.iter().map(|(_, units)| u64::from(*units));
        Self {
            queue,
            depth,
            units: queue.free.units() + running.sum::<u64>(),
            ends: Vec::new(),
        }
    }

    /// The sum of the completion times of the actions after `started`, if these start now. The
    /// first of them is tried with its first `depth` options, the others get their smallest.
    pub(crate) fn others_us(&mut self, started: &[Choice]) -> u64 {
        let Some((first, others)) = self.queue.waiting[started.len()..].split_first() else {
            return 0;
        };
        let granted: u64 = started.iter().map(|choice| u64::from(choice.units)).sum();
        let free = self.queue.free.units().saturating_sub(granted);
        let tries = first.choices.iter().take(self.depth);
        let tries: Vec<u64> = tries
            .map(|choice| {
                let mut pool = Pool {
                    ends: self.ends(started),
                    free,
                    now_us: 0,
                };
                let sum_us = pool.serve(choice).unwrap_or(0) + pool.serve_all(others);
                let late_us = pool.late_us(self.units, self.queue.beyond);
                self.ends = pool.ends.into_vec();
                sum_us + late_us
            })
            .collect();
        tries.into_iter().min().unwrap_or(0)
    }

    /// The ends of running actions and of those that start now.
    fn ends(&mut self, started: &[Choice]) -> Ends {
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.extend(self.queue.running.iter().map(|end| Reverse(*end)));
        let started = started.iter();
        ends.extend(started.map(|choice| Reverse((choice.us, choice.units))));
        ends.into()
    }
}

/// A pool at a simulated time.
struct Pool {
    ends: Ends,
    free: u64,
    now_us: u64,
}

impl Pool {
    fn serve_all(&mut self, waiting: &[Waiting]) -> u64 {
        let ends = waiting
            .iter()
            .filter_map(|waiting| self.serve(waiting.least()));
        ends.sum()
    }

    /// Starts an action as soon as its units are free, and returns its end; `None` if they never
    /// are. Chunks are ignored.
    fn serve(&mut self, choice: &Choice) -> Option<u64> {
        let units = u64::from(choice.units);
        while self.free < units {
            let Reverse((end_us, freed)) = self.ends.pop()?;
            self.now_us = self.now_us.max(end_us);
            self.free += u64::from(freed);
        }
        self.free -= units;
        let end_us = self.now_us + choice.us;
        self.ends.push(Reverse((end_us, choice.units)));
        Some(end_us)
    }

    /// For actions beyond the horizon the mean time at which a unit of the pool becomes free. Their
    /// own run times are the same whatever starts now.
    fn late_us(&self, units: u64, waiting: usize) -> u64 {
        if waiting == 0 || units == 0 {
            return 0;
        }
        let busy = self.ends.iter().map(|Reverse((end_us, units))| {
            u128::from((*end_us).max(self.now_us)) * u128::from(*units)
        });
        let sum = busy.sum::<u128>() + u128::from(self.now_us) * u128::from(self.free);
        let late_us = sum * waiting as u128 / u128::from(units);
        u64::try_from(late_us).unwrap_or(u64::MAX >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_plugin::FreeUnits;

    fn waiting(choices: &[(u32, u64)]) -> Waiting {
        let choice = |(option, (units, us)): (usize, &(u32, u64))| Choice {
            option: option as u32,
            units: *units,
            us: *us,
        };
        Waiting {
            row: 0,
            choices: choices.iter().enumerate().map(choice).collect(),
            is_known: true,
        }
    }

    #[test]
    fn an_action_waits_until_all_its_units_are_free() {
        let queue = Queue {
            free: FreeUnits::plain(2),
            chunks: None,
            waiting: vec![
                waiting(&[(1, 9), (2, 5)]),
                waiting(&[(3, 10), (6, 1)]),
                waiting(&[(1, 4)]),
            ],
            candidates: 1,
            beyond: 0,
            running: vec![(7, 1), (20, 3)],
        };
        let first = queue.waiting[0].choices.clone();
        let others_us =
            |depth: usize, started: &Choice| Estimate::new(&queue, depth).others_us(&[*started]);
        // At 9 three are free: the one left over, that of 7 and that of 9. The last has to wait
        // until one is done, at 19.
        assert_eq!(others_us(1, &first[0]), 19 + 23);
        // With six it ends at 20 + 1, and the last after it.
        assert_eq!(others_us(2, &first[0]), 19 + 23);
        let mut patient = queue.clone();
        patient.waiting[1] = waiting(&[(3, 90), (6, 1)]);
        let mut estimate = Estimate::new(&patient, 2);
        assert_eq!(estimate.others_us(&first[..1]), 21 + 25);
    }
}
