//! The paper's dynamic program (Formula 3), with groups that may be empty: the reference for
//! [`crate::partition`] in tests and in the benchmark.

use crate::{Objective, Run};

/// The least latest end, in microseconds; `None` where there are programs and no
/// workers. Takes O(n²m) evaluations of the objective.
pub fn makespan_us<O: Objective>(lengths: &[f64], runs: &[Run<'_>]) -> Option<f64> {
    let programs = lengths.len();
    // By the number of assigned programs; so far to no worker at all.
    let mut before = vec![f64::INFINITY; programs + 1];
    before[0] = 0.0;
    for run in runs {
        let units = run.units.after(run.offset);
        for _ in 0..run.count {
            let mut now = before.clone();
            for from in 0..programs {
                for (size, best_us) in now[from..].iter_mut().enumerate().skip(1) {
                    let end_us = O::end_us(&lengths[from..], size, units);
                    *best_us = best_us.min(before[from].max(end_us));
                }
            }
            before = now;
        }
    }
    let best = before[programs];
    best.is_finite().then_some(best)
}
