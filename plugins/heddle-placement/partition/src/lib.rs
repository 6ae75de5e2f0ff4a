//! Which programs share a worker: Heddle's presorted contiguous partition (§5.2), for the policies
//! that place programs and that choose degrees of parallelism.
//!
//! Lengths are sorted, the longest first. Workers are given as [`Run`]s of equal ones, in the order
//! in which they get groups. Each gets the next programs of the list; a group may be empty. The
//! result is the split whose latest worker ends first.
//!
//! The paper finds it by dynamic programming in O(n²m); that is [`reference`] here. [`partition`]
//! finds the same value by checking for a bound whether everything fits under it, which is one
//! greedy scan, and by searching for the least such bound among the occurring values.

mod any_order;
mod fluid;
mod interference;
mod level;
mod measured_times;
mod mixed;
mod objective;
pub mod reference;
mod search;

pub use any_order::{Ordered, STATES_MAX, partition_any_order};
pub use fluid::{Habits, Iteration, Member, Pace, check_measured, fluid_ends_by, partition_fluid};
pub use interference::{Interference, POINTS_MAX, Units};
pub use level::level;
pub use measured_times::MeasuredTimes;
pub use mixed::{Load, deal_evenly};
pub use objective::{Drained, Objective, Paper};
pub use search::{Partition, Probe, Run, partition, probe};

/// Normalises a length: finite, at least 1 and at most `LENGTH_MAX`, so that no product overflows.
/// NaN counts as 1.
pub fn length(tokens: f64) -> f64 {
    tokens.max(1.0).clamp(1.0, LENGTH_MAX)
}

/// Longer programs are cut to this length, in tokens.
pub const LENGTH_MAX: f64 = 1e12;
