//! Improves the workers that end before the latest: a split may be optimal and yet leave workers
//! idle beside crowded ones. This one is also optimal for the workers after the first, for those
//! after the second, and so on.

use crate::Objective;
use crate::search::{Partition, Probe, Run, probe};

/// Like [`crate::partition`], with the same latest end, and the others evened out.
/// Each worker gets the fewest programs with which it ends no sooner than the best split of the
/// rest over the following workers; that is a call of [`probe`], not a search. Both sides are
/// monotone in the number, so the better of that number and one less is optimal.
/// number and one less is best.
///
/// # Panics
/// When a table of units is too short for the list.
pub fn level<O: Objective>(lengths: &[f64], runs: &[Run<'_>]) -> Option<Partition> {
    let mut left: Vec<Run<'_>> = runs.iter().copied().filter(|run| run.count > 0).collect();
    let mut found = Partition {
        sizes: Vec::with_capacity(left.iter().map(|run| run.count).sum()),
        makespan_us: 0.0,
        probes: 0,
    };
    let (mut tail, mut first) = (lengths, 0);
    while first < left.len() {
        let units = left[first].units.after(left[first].offset);
        left[first].count -= 1;
        if left[first].count == 0 {
            first += 1;
        }
        let size = peel::<O>(tail, units, &left[first..], &mut found.probes);
        found.makespan_us = found.makespan_us.max(O::end_us(tail, size, units));
        found.sizes.push(size);
        tail = &tail[size..];
    }
    tail.is_empty().then_some(found)
}

/// Number of programs of one worker, before the others get theirs.
fn peel<O: Objective>(tail: &[f64], units: &[f64], others: &[Run<'_>], probes: &mut u32) -> usize {
    if others.is_empty() {
        return tail.len();
    }
    let mut rest_fits = |size: usize, bound_us: f64| {
        *probes += 1;
        matches!(probe::<O>(&tail[size..], others, bound_us), Probe::Fits(_))
    };
    let (mut low, mut high) = (0, tail.len());
    while low < high {
        let size = usize::midpoint(low, high);
        if rest_fits(size, O::end_us(tail, size, units)) {
            high = size;
        } else {
            low = size + 1;
        }
    }
    // With one less the others end last; is that still better?
    if low > 0 && rest_fits(low - 1, O::end_us(tail, low, units).next_down()) {
        low - 1
    } else {
        low
    }
}
