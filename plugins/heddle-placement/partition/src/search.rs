//! The least bound under which everything fits, by one greedy scan per bound.
//!
//! **The scan is right** for any order of any workers. Let `e(w, p)` be where worker w
//! ends its largest group under the bound when it begins at p. For p < q, either
//! `e(w, p) <= q <= e(w, q)`, or the part of w's group from q on is smaller and begins
//! with a program that is no longer, so it is under the bound too and
//! `e(w, q) >= e(w, p)`. So `e` never falls in p, and by induction no split of the
//! first programs over the first workers reaches further than the scan. Multiplication
//! of floats is monotone, so this holds for rounded products as well.
//!
//! **The search ends at the optimum.** A scan that fits has a latest end among the
//! products that occur, which becomes the upper end. A scan that does not fit goes the
//! same way under every bound below the least product that was too much, which becomes
//! the lower end. Each probe discards at least one of finitely many products.

use crate::{Objective, Units};

/// Equal workers that are adjacent in the order.
#[derive(Debug, Clone, Copy)]
pub struct Run<'u> {
    /// Time per token by group size, for at least as many programs as there are, and
    /// `offset` more.
    pub units: &'u Units,
    /// Number of programs that each of these workers runs already.
    pub offset: usize,
    /// Number of such workers.
    pub count: usize,
}

/// A split of the sorted list.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Number of programs of each worker, in the order of the runs.
    pub sizes: Vec<usize>,
    /// When the latest worker ends, in microseconds.
    pub makespan_us: f64,
    /// Number of scans.
    pub probes: u32,
}

/// The result of a scan under a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Probe {
    /// All programs fit; the latest worker ends then.
    Fits(f64),
    /// They do not fit, nor under any bound below this one.
    TooMuch(f64),
}

/// Whether everything fits under a bound. Takes O(m log n) for [`crate::Paper`] and
/// O(n) for [`crate::Drained`].
pub fn probe<O: Objective>(lengths: &[f64], runs: &[Run<'_>], bound_us: f64) -> Probe {
    scan::<O>(lengths, runs, bound_us, |_| ())
}

fn scan<O: Objective>(
    lengths: &[f64],
    runs: &[Run<'_>],
    bound_us: f64,
    mut group: impl FnMut(usize),
) -> Probe {
    let (mut tail, mut latest_us, mut next_us) = (lengths, 0.0_f64, f64::INFINITY);
    for run in runs {
        let units = run.units.after(run.offset);
        for _ in 0..run.count {
            if tail.is_empty() {
                return Probe::Fits(latest_us);
            }
            let reach = O::reach(tail, units, bound_us);
            group(reach.size);
            if reach.size > 0 {
                latest_us = latest_us.max(reach.end_us);
            }
            next_us = next_us.min(reach.next_us);
            tail = &tail[reach.size..];
        }
    }
    if tail.is_empty() {
        Probe::Fits(latest_us)
    } else {
        Probe::TooMuch(next_us)
    }
}

/// The split whose latest worker ends first, of all splits into contiguous groups in
/// the order of the runs; `None` where there are programs and no workers.
///
/// `lengths` are sorted, the longest first, and finite and above 0 ([`crate::length`]).
///
/// # Panics
/// When a table of units is too short for the list.
pub fn partition<O: Objective>(lengths: &[f64], runs: &[Run<'_>]) -> Option<Partition> {
    let workers: usize = runs.iter().map(|run| run.count).sum();
    if workers == 0 && !lengths.is_empty() {
        return None;
    }
    let mut probes = 0;
    let (mut too_little_us, mut enough_us) = ends(runs, lengths, even::<O>(lengths, runs, workers));
    while too_little_us < enough_us {
        let between_us = f64::midpoint(too_little_us, enough_us);
        // Rounded up to the upper end, it would be tried again forever.
        let bound_us = if between_us < enough_us {
            between_us
        } else {
            too_little_us
        };
        probes += 1;
        match probe::<O>(lengths, runs, bound_us) {
            Probe::Fits(end_us) => enough_us = end_us,
            Probe::TooMuch(next_us) => too_little_us = next_us,
        }
    }
    let mut sizes = Vec::with_capacity(workers);
    scan::<O>(lengths, runs, enough_us, |size| sizes.push(size));
    sizes.resize(workers, 0);
    Some(Partition {
        sizes,
        makespan_us: enough_us,
        probes,
    })
}

/// The longest program occupies some worker at least; the even split is an upper limit.
fn ends(runs: &[Run<'_>], lengths: &[f64], even_us: f64) -> (f64, f64) {
    let longest = lengths.first().copied().unwrap_or(0.0);
    let alone = runs.iter().filter(|run| run.count > 0);
    let alone_us = alone
        .map(|run| run.units.after(run.offset).get(1).copied().unwrap_or(0.0) * longest)
        .fold(f64::INFINITY, f64::min);
    (alone_us.min(even_us), even_us)
}

/// The latest end if all groups have the same size, or one less.
fn even<O: Objective>(lengths: &[f64], runs: &[Run<'_>], workers: usize) -> f64 {
    let (mut tail, mut latest_us, mut left) = (lengths, 0.0_f64, workers);
    for run in runs {
        let units = run.units.after(run.offset);
        for _ in 0..run.count {
            let size = tail.len().div_ceil(left);
            latest_us = latest_us.max(O::end_us(tail, size, units));
            tail = &tail[size..];
            left -= 1;
        }
    }
    latest_us
}
