//! How fast workers are, and what programs do beside generating: as configured, else as the host
//! has seen it.

use heddle_partition::{Habits, Interference, Iteration, Pace};
use treadle_plugin::WorkerColumns;

use crate::config::{Class, Config};

/// The batch that a straight line is drawn to.
const BATCH_MAX: u32 = 1_024;
/// Seen times of an iteration are within this, in microseconds.
const TIME_US: (f64, f64) = (1e-3, 1e9);
/// Seen times and habits are within this.
const HABIT_MAX: f64 = 1e9;

/// How fast a worker is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    /// As its class, by its row.
    Class(usize),
    /// As it was seen to be.
    Seen(Seen),
    /// Nothing is known: workers count as equally fast.
    Unknown,
}

/// What was seen, in microseconds: of a token alone, of each further step, and of a token of a prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    token: f64,
    step: f64,
    prefill: f64,
}

/// The speed of each worker. One that has run nothing yet counts as the mean of those that have.
pub(crate) fn speeds(config: &Config, workers: &WorkerColumns<'_>) -> Vec<Speed> {
    if !config.classes.is_empty() {
        let capacities = workers.capacity_tokens.iter();
        let nearest = |&capacity| nearest(&config.classes, capacity);
        return capacities.map(nearest).map(Speed::Class).collect();
    }
    let seen: Vec<Option<Seen>> = (0..workers.len())
        .map(|row| Seen::of(workers, row))
        .collect();
    let known = || seen.iter().flatten();
    let mean = |value: fn(&Seen) -> f64| known().map(value).sum::<f64>() / known().count() as f64;
    let like_others = known().next().map(|_| Seen {
        token: mean(|seen| seen.token),
        step: mean(|seen| seen.step),
        prefill: mean(|seen| seen.prefill),
    });
    let speed = |seen: &Option<Seen>| {
        let seen = seen.or(like_others);
        seen.map_or(Speed::Unknown, |seen| Speed::Seen(seen.rounded()))
    };
    seen.iter().map(speed).collect()
}

/// The class whose capacity is nearest.
fn nearest(classes: &[Class], capacity: u64) -> usize {
    let distance = |row: &usize| classes[*row].capacity_tokens.abs_diff(capacity);
    (0..classes.len()).min_by_key(distance).unwrap_or(0)
}

impl Seen {
    fn of(workers: &WorkerColumns<'_>, row: usize) -> Option<Self> {
        let (token, step) = (workers.token_us[row], workers.step_us[row]);
        (token >= 0.0 && step >= 0.0).then(|| Self {
            token: token.clamp(TIME_US.0, TIME_US.1),
            step: step.min(token).min(TIME_US.1),
            prefill: workers.prefill_us[row].clamp(0.0, TIME_US.1),
        })
    }

    /// Workers that are alike differ a little in what is seen of them: they are to count as alike.
    fn rounded(self) -> Self {
        let step = rounded(self.step);
        Self {
            token: rounded(self.token).max(step),
            step,
            prefill: rounded(self.prefill),
        }
    }
}

/// To an eighth of the next lower power of two.
fn rounded(value: f64) -> f64 {
    const DROPPED: u64 = 1 << (f64::MANTISSA_DIGITS - 1 - 3);
    f64::from_bits((value.to_bits() + DROPPED / 2) & !(DROPPED - 1))
}

impl Speed {
    /// Time per token of one program alone, in microseconds.
    pub(crate) fn token_us(self, config: &Config) -> f64 {
        match self {
            Self::Class(row) => config.classes[row].token_us,
            Self::Seen(seen) => seen.token,
            Self::Unknown => 1.0,
        }
    }

    /// How much its programs disturb one another.
    pub(crate) fn profile(self, config: &Config) -> Interference {
        let profile = match self {
            // Checked with the configuration.
            Self::Class(row) => config.classes[row].profile().ok(),
            Self::Seen(seen) => {
                let further = f64::from(BATCH_MAX - 1) * seen.step / seen.token;
                Interference::new(&[(BATCH_MAX, 1.0 + further)]).ok()
            }
            Self::Unknown => None,
        };
        profile.unwrap_or_default()
    }

    /// What its iterations take.
    pub(crate) fn pace(self, config: &Config, capacity_tokens: u64) -> Pace {
        let iteration = match self {
            Self::Class(row) => config.classes[row].pace,
            // What contexts add is in what a program adds, as it was seen.
            Self::Seen(seen) => Some(Iteration {
                base_us: (seen.token - seen.step).max(TIME_US.0),
                program_us: seen.step,
                kilotoken_us: 0.0,
                prefill_us: seen.prefill,
                batch_max: f64::INFINITY,
            }),
            Self::Unknown => None,
        };
        Pace::of(iteration, self.token_us(config), capacity_tokens)
    }
}

/// What the programs of a call do: as configured, else the mean of what their jobs were seen to do.
pub(crate) fn habits(config: &Config, growth: &[f64], tool_us: &[f64]) -> Habits {
    let mean = |column: &[f64], unknown: f64| {
        let known = || column.iter().filter(|value| **value >= 0.0);
        let sum: f64 = known().map(|value| value.min(HABIT_MAX)).sum();
        match known().count() {
            0 => unknown,
            count => sum / count as f64,
        }
    };
    let unknown = Habits::default();
    Habits {
        growth: config
            .growth
            .unwrap_or_else(|| mean(growth, unknown.growth)),
        tool_us: config
            .tool_us
            .unwrap_or_else(|| mean(tool_us, unknown.tool_us)),
    }
}
