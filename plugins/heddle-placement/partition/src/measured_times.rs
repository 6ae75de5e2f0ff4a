//! Measured speeds of workers, used without a configuration.

use crate::{Interference, Iteration, Pace};

/// The batch size up to which times are linear.
const BATCH_MAX: u32 = 1_024;
/// Measured times are clamped to this range, in microseconds.
const TIME_US: (f64, f64) = (1e-3, 1e9);

/// Measured times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredTimes {
    /// Time per token of one program by itself.
    pub token: f64,
    /// Time that each further program adds for all.
    pub step: Option<f64>,
    /// Time per prompt token.
    pub prefill: Option<f64>,
}

impl MeasuredTimes {
    /// From columns, in which negative numbers mean unknown; `None` without the time of a token.
    pub fn of(token_us: f64, step_us: f64, prefill_us: f64) -> Option<Self> {
        let known = |time: f64| (time >= 0.0).then(|| time.clamp(TIME_US.0, TIME_US.1));
        let token = known(token_us)?;
        Some(Self {
            token,
            step: known(step_us).map(|step| step.min(token)),
            prefill: known(prefill_us),
        })
    }

    /// Time that each further program adds: from the default profile if it was not measured.
    pub fn further(self) -> f64 {
        self.step.unwrap_or(self.token / 127.0)
    }

    /// How much programs slow each other down.
    pub fn profile(self) -> Interference {
        let further = f64::from(BATCH_MAX - 1) * self.further() / self.token;
        Interference::new(&[(BATCH_MAX, 1.0 + further)]).unwrap_or_default()
    }

    /// The duration of iterations. The cost of contexts is included in the measured cost of a
    /// program.
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
