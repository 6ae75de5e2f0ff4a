//! Speeds of workers, and what programs do besides generating: as configured, else as measured by
//! the host.

use std::cmp::Ordering;

use heddle_partition::{Habits, Interference, MeasuredTimes, Pace};
use treadle_plugin::WorkerColumns;

use crate::config::{Class, Config};

/// Time in tools per generated token is cut to this, in microseconds.
const TOOL_US_MAX: f64 = 1e9;
/// Growth per generated token is cut to this.
const GROWTH_MAX: f64 = 1e3;

/// The source of a worker's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    /// Its class, by row.
    Class(usize),
    /// Its measured speed.
    Measured(MeasuredTimes),
    /// Unknown: such workers count as equally fast.
    Unknown,
}

/// The speed of each worker. One without measurements counts as the mean of the others, and workers
/// that differ little count as equal.
pub(crate) fn speeds(config: &Config, workers: &WorkerColumns<'_>) -> Vec<Speed> {
    if !config.classes.is_empty() {
        let capacities = workers.capacity_tokens.iter();
        let nearest = |&capacity| nearest(&config.classes, capacity);
        return capacities.map(nearest).map(Speed::Class).collect();
    }
    let seen: Vec<Option<MeasuredTimes>> = (0..workers.len())
        .map(|row| {
            MeasuredTimes::of(
                workers.token_us[row],
                workers.step_us[row],
                workers.prefill_us[row],
            )
        })
        .collect();
    let Some(mean) = mean(seen.iter().flatten()) else {
        return vec![Speed::Unknown; workers.len()];
    };
    let known = seen
        .iter()
        .map(|seen| seen.map_or(mean, |seen| filled(seen, mean)));
    let known: Vec<MeasuredTimes> = known.collect();
    let mut sorted = known.clone();
    sorted.sort_by(|left, right| order(*left, *right));
    // The fastest of the equal ones.
    let mut kinds: Vec<MeasuredTimes> = Vec::new();
    for seen in sorted {
        if !kinds.iter().any(|kind| is_like(*kind, seen)) {
            kinds.push(seen);
        }
    }
    let kind = |seen: &MeasuredTimes| kinds.iter().find(|kind| is_like(**kind, *seen));
    let speed = |seen: &MeasuredTimes| Speed::Measured(*kind(seen).unwrap_or(seen));
    known.iter().map(speed).collect()
}

/// The class whose capacity is nearest.
fn nearest(classes: &[Class], capacity: u64) -> usize {
    let distance = |row: &usize| classes[*row].capacity_tokens.abs_diff(capacity);
    (0..classes.len()).min_by_key(distance).unwrap_or(0)
}

/// The mean of some speeds; unknown figures of one are ignored.
fn mean<'a>(seen: impl Iterator<Item = &'a MeasuredTimes> + Clone) -> Option<MeasuredTimes> {
    let mean = |values: Vec<f64>| match values.len() {
        0 => None,
        count => Some(values.iter().sum::<f64>() / count as f64),
    };
    Some(MeasuredTimes {
        token: mean(seen.clone().map(|seen| seen.token).collect())?,
        step: mean(seen.clone().filter_map(|seen| seen.step).collect()),
        prefill: mean(seen.filter_map(|seen| seen.prefill).collect()),
    })
}

/// Replaces unknown figures by those of the mean.
fn filled(seen: MeasuredTimes, mean: MeasuredTimes) -> MeasuredTimes {
    MeasuredTimes {
        step: seen.step.or(mean.step).map(|step| step.min(seen.token)),
        prefill: seen.prefill.or(mean.prefill),
        ..seen
    }
}

/// Orders the faster one first.
fn order(left: MeasuredTimes, right: MeasuredTimes) -> Ordering {
    let key = |seen: MeasuredTimes| [Some(seen.token), seen.step, seen.prefill];
    let pairs = key(left).into_iter().zip(key(right));
    let orders = pairs.map(|(left, right)| left.unwrap_or(-1.0).total_cmp(&right.unwrap_or(-1.0)));
    orders.fold(Ordering::Equal, Ordering::then)
}

/// Whether another one, not faster, is within an eighth, with a similar slope.
fn is_like(seen: MeasuredTimes, other: MeasuredTimes) -> bool {
    (seen.token..=seen.token * 1.125).contains(&other.token)
        && (seen.further() - other.further()).abs() <= seen.token / 64.0
}

impl Speed {
    /// Time per token of one program by itself, in microseconds.
    pub(crate) fn token_us(self, config: &Config) -> f64 {
        match self {
            Self::Class(row) => config.classes[row].token_us,
            Self::Measured(seen) => seen.token,
            Self::Unknown => 1.0,
        }
    }

    /// How much its programs slow each other down.
    pub(crate) fn profile(self, config: &Config) -> Interference {
        let profile = match self {
            // Checked with the configuration.
            Self::Class(row) => config.classes[row].profile().ok(),
            Self::Measured(seen) => Some(seen.profile()),
            Self::Unknown => None,
        };
        profile.unwrap_or_default()
    }

    /// The duration of its iterations.
    pub(crate) fn pace(self, config: &Config, capacity_tokens: u64) -> Pace {
        let iteration = match self {
            Self::Class(row) => config.classes[row].pace,
            Self::Measured(seen) => return seen.pace(capacity_tokens),
            Self::Unknown => None,
        };
        Pace::of(iteration, self.token_us(config), capacity_tokens)
    }
}

/// What the programs of a call do: as configured, else the median of their jobs' measurements.
pub(crate) fn habits(config: &Config, growth: &[f64], tool_us: &[f64]) -> Habits {
    let median = |column: &[f64], most: f64| {
        let known = column.iter().copied().filter(|value| *value >= 0.0);
        let mut known: Vec<f64> = known.map(|value| value.min(most)).collect();
        known.sort_by(f64::total_cmp);
        known.get(known.len() / 2).copied()
    };
    let unknown = Habits::default();
    let growth = config.growth.or_else(|| median(growth, GROWTH_MAX));
    let tool_us = config.tool_us.or_else(|| median(tool_us, TOOL_US_MAX));
    Habits {
        growth: growth.unwrap_or(unknown.growth),
        tool_us: tool_us.unwrap_or(unknown.tool_us),
    }
}
