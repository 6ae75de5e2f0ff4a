//! The best split over every order of the workers.
//!
//! The paper gives the longest group to the fastest worker. Under Formula 2 that is
//! not always best: a single long program may be better off on a slow worker, so that
//! a fast one is free for a large group. Some contiguous split in some order is best of
//! all assignments, contiguous or not, if the factor depends only on the size: sort
//! the groups of any assignment by their longest program and give out the sorted list
//! in that order with the same sizes. The k-th group then begins with the program that
//! follows those of the k-1 groups before it, and some group from the k-th on held one
//! at least as long, so the k-th did.
//!
//! Equal workers are interchangeable, so what matters is how many of each kind have had their
//! groups. Under a bound the furthest reach of each such set follows from the sets with one worker
//! less.

use crate::search::{Partition, Probe, Run, partition};
use crate::{Objective, Paper};

/// Most sets of workers that are looked at; with more, the order stays.
pub const STATES_MAX: usize = 4_096;

/// A split and the order of workers that it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered {
    /// The run of each worker, in the order in which they take their groups.
    pub runs: Vec<usize>,
    /// The split, in that order.
    pub partition: Partition,
}

/// The best split under Formula 2 over all orders of the workers; `None` where there
/// are programs and no workers, or more than [`STATES_MAX`] sets of workers.
///
/// `lengths` are as for [`partition`].
///
/// # Panics
/// When a table of units is too short for the list.
pub fn partition_any_order(lengths: &[f64], runs: &[Run<'_>]) -> Option<Ordered> {
    let sets = Sets::of(runs)?;
    let mut best = partition::<Paper>(lengths, runs)?;
    let mut too_little_us = 0.0;
    let mut reaches = vec![0; sets.states];
    while too_little_us < best.makespan_us {
        let between_us = f64::midpoint(too_little_us, best.makespan_us);
        let bound_us = if between_us < best.makespan_us {
            between_us
        } else {
            too_little_us
        };
        best.probes += 1;
        match sets.scan(lengths, bound_us, &mut reaches) {
            Probe::Fits(end_us) => best.makespan_us = end_us,
            Probe::TooMuch(next_us) => too_little_us = next_us,
        }
    }
    sets.scan(lengths, best.makespan_us, &mut reaches);
    let mut order = Vec::new();
    best.sizes.clear();
    sets.path(lengths, best.makespan_us, &reaches, |run, size, _| {
        order.push(run);
        best.sizes.push(size);
    });
    order.reverse();
    best.sizes.reverse();
    Some(Ordered {
        runs: order,
        partition: best,
    })
}

/// Sets of workers as numbers in a mixed radix: how many of each run.
struct Sets<'r> {
    runs: &'r [Run<'r>],
    /// What one more worker of each run adds to the number.
    steps: Vec<usize>,
    states: usize,
}

impl<'r> Sets<'r> {
    fn of(runs: &'r [Run<'r>]) -> Option<Self> {
        let (mut states, mut steps) = (1_usize, Vec::with_capacity(runs.len()));
        for run in runs {
            steps.push(states);
            states = states.checked_mul(run.count + 1)?;
        }
        (states <= STATES_MAX).then_some(Self {
            runs,
            steps,
            states,
        })
    }

    /// The runs with a worker in a set, with the set without it.
    fn before(&self, set: usize) -> impl Iterator<Item = (usize, usize)> {
        let rows = self.runs.iter().zip(&self.steps).enumerate();
        rows.filter(move |(_, (run, step))| !(set / **step).is_multiple_of(run.count + 1))
            .map(move |(row, (_, step))| (row, set - step))
    }

    fn reach(&self, lengths: &[f64], run: usize, from: usize, bound_us: f64) -> (usize, f64, f64) {
        if from == lengths.len() {
            return (from, 0.0, f64::INFINITY);
        }
        let units = self.runs[run].units.after(self.runs[run].offset);
        let reach = Paper::reach(&lengths[from..], units, bound_us);
        (from + reach.size, reach.end_us, reach.next_us)
    }

    fn scan(&self, lengths: &[f64], bound_us: f64, reaches: &mut [usize]) -> Probe {
        let mut too_much_us = f64::INFINITY;
        for set in 1..self.states {
            let mut furthest = 0;
            for (run, before) in self.before(set) {
                let (to, _, next_us) = self.reach(lengths, run, reaches[before], bound_us);
                furthest = furthest.max(to);
                too_much_us = too_much_us.min(next_us);
            }
            reaches[set] = furthest;
        }
        if reaches[self.states - 1] < lengths.len() {
            return Probe::TooMuch(too_much_us);
        }
        let mut latest_us = 0.0_f64;
        self.path(lengths, bound_us, reaches, |_, size, end_us| {
            if size > 0 {
                latest_us = latest_us.max(end_us);
            }
        });
        Probe::Fits(latest_us)
    }

    /// The workers of a way to the furthest reach of all, from the last to the first:
    /// run, size and end of each.
    fn path(
        &self,
        lengths: &[f64],
        bound_us: f64,
        reaches: &[usize],
        mut group: impl FnMut(usize, usize, f64),
    ) {
        let mut set = self.states - 1;
        while set > 0 {
            let Some((run, before, end_us)) = self.before(set).find_map(|(run, before)| {
                let (to, end_us, _) = self.reach(lengths, run, reaches[before], bound_us);
                (to == reaches[set]).then_some((run, before, end_us))
            }) else {
                return;
            };
            group(run, reaches[set] - reaches[before], end_us);
            set = before;
        }
    }
}
