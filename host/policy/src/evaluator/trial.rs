//! A canary's trial: whether its programs fare worse than those of the active policy.
//!
//! The measure is the time from a step's arrival to its end. Programs are divided by hash, so both
//! shares get the same kind of work, and a difference of means beyond chance is caused by the
//! canary: its regret.

use serde::Serialize;
use utoipa::ToSchema;

/// When a canary is rolled back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialLimits {
    /// Minimum number of finished steps in both shares. Default 100.
    pub steps_min: u64,
    /// Tolerated regret: how much longer the canary's steps may take, as a share of the active
    /// policy's. Default 0.25.
    pub regret_max: f64,
}

impl Default for TrialLimits {
    fn default() -> Self {
        Self {
            steps_min: 100,
            regret_max: 0.25,
        }
    }
}

/// Standard errors by which the means must differ beyond the tolerated regret.
const STANDARD_ERRORS: f64 = 3.0;

/// Times of steps, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = StepTimes)]
pub struct Spread {
    /// Number of steps.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Sum of the squares of the differences from the mean, by Welford's method.
    #[serde(skip)]
    squares: f64,
}

impl Spread {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let from_old = value - self.mean;
        self.mean += from_old / self.count as f64;
        self.squares += from_old * (value - self.mean);
    }

    /// Variance of the mean.
    fn error_squared(&self) -> f64 {
        if self.count < 2 {
            return f64::INFINITY;
        }
        self.squares / (self.count - 1) as f64 / self.count as f64
    }
}

/// Results of the two shares so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = CanaryTrial)]
pub struct Trial {
    /// Steps of the incumbent's programs.
    pub incumbent: Spread,
    /// Steps of the canary's programs.
    pub canary: Spread,
}

impl Trial {
    /// Adds an ended step of one of the shares.
    pub fn add(&mut self, of_canary: bool, step_ms: f64) {
        let spread = if of_canary {
            &mut self.canary
        } else {
            &mut self.incumbent
        };
        spread.add(step_ms);
    }

    /// How much longer the canary's steps take, as a share of the active policy's; 0 without data.
    pub fn regret(&self) -> f64 {
        if self.incumbent.mean <= 0.0 || self.canary.count == 0 {
            return 0.0;
        }
        self.canary.mean / self.incumbent.mean - 1.0
    }

    /// True if the canary's regret exceeds both the tolerated regret and chance.
    pub fn has_failed(&self, limits: &TrialLimits) -> bool {
        let least = self.incumbent.count.min(self.canary.count);
        if least < limits.steps_min.max(2) {
            return false;
        }
        let borne = self.incumbent.mean * (1.0 + limits.regret_max);
        let error = (self.incumbent.error_squared() + self.canary.error_squared()).sqrt();
        self.canary.mean > borne + STANDARD_ERRORS * error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(steps: u64, canary_ms: f64) -> Trial {
        let mut trial = Trial::default();
        for step in 0..steps {
            let noise = (step * 7_919 % 100) as f64;
            trial.add(false, 1_000.0 + noise);
            trial.add(true, canary_ms + noise);
        }
        trial
    }

    #[test]
    fn regret_beyond_what_is_borne_fails() {
        let limits = TrialLimits::default();
        assert!(trial(200, 1_500.0).has_failed(&limits));
        assert!(!trial(200, 1_200.0).has_failed(&limits));
        assert!(!trial(200, 800.0).has_failed(&limits));
    }

    #[test]
    fn few_steps_prove_nothing() {
        let limits = TrialLimits::default();
        assert!(!trial(99, 90_000.0).has_failed(&limits));
    }

    #[test]
    fn what_chance_explains_is_no_regret() {
        let mut trial = Trial::default();
        for step in 0..200_u64 {
            // Rare huge steps; the canary happens to have one more.
            let huge = |every: u64| if step % every == 0 { 1e6 } else { 1.0 };
            trial.add(false, huge(100));
            trial.add(true, huge(67));
        }
        assert!(trial.regret() > 0.25);
        assert!(!trial.has_failed(&TrialLimits::default()));
    }

    #[test]
    fn mean_and_spread_agree_with_the_definition() {
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let mut spread = Spread::default();
        for value in values {
            spread.add(value);
        }
        let mean = values.iter().sum::<f64>() / 8.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 7.0;
        assert!((spread.mean - mean).abs() < 1e-12);
        assert!((spread.error_squared() - variance / 8.0).abs() < 1e-12);
    }
}
