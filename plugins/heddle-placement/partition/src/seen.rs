//! How fast a worker was seen to be, where nothing was configured.

use crate::{Interference, Iteration, Pace};

/// The batch that a straight line is drawn to.
const BATCH_MAX: u32 = 1_024;
/// Seen times are within this, in microseconds.
const TIME_US: (f64, f64) = (1e-3, 1e9);

/// What was seen, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// A token of one program alone.
    pub token: f64,
    /// What each further program adds for all.
    pub step: Option<f64>,
    /// A token of a prompt.
    pub prefill: Option<f64>,
}

impl Seen {
    /// From columns, where less than 0 is not known; nothing without the time of a token.
    pub fn of(token_us: f64, step_us: f64, prefill_us: f64) -> Option<Self> {
        let known = |time: f64| (time >= 0.0).then(|| time.clamp(TIME_US.0, TIME_US.1));
        let token = known(token_us)?;
        Some(Self {
            token,
            step: known(step_us).map(|step| step.min(token)),
            prefill: known(prefill_us),
        })
    }

    /// What each further program adds: as the default profile has it, where that was not seen.
    pub fn further(self) -> f64 {
        self.step.unwrap_or(self.token / 127.0)
    }

    /// How much programs disturb one another.
    pub fn profile(self) -> Interference {
        let further = f64::from(BATCH_MAX - 1) * self.further() / self.token;
        Interference::new(&[(BATCH_MAX, 1.0 + further)]).unwrap_or_default()
    }

    /// What iterations take. What contexts add is in what a program adds, as it was seen.
    pub fn pace(self, capacity_tokens: u64) -> Pace {
        let iteration = Iteration {
            base_us: (self.token - self.further()).max(TIME_US.0),
            program_us: self.further(),
            kilotoken_us: 0.0,
            prefill_us: self.prefill.unwrap_or(0.0),
            batch_max: f64::INFINITY,
        };
        Pace::of(Some(iteration), self.token, capacity_tokens)
    }
}
