//! The regression: one for all programs, and one for each stage, which stays close to it if the
//! stage has few rows.

use treadle_plugin::exact::{exp, exp2, ln, log2};
use treadle_plugin::ridge::{Ridge, dot};

use crate::features::{FEATURES, Features, HISTORY, TOKENS_SOFT, TOOL_MS_SOFT};

/// Number of stages of a program, by its finished steps: 0, 1, 2, 3, 4 to 5, 6 to 9, 10 and more;
/// all but the first once while its tool runs and once when that has returned.
pub(crate) const STAGES: usize = 13;
/// Number of targets: remaining tokens, and remaining time in tools.
const TARGETS: usize = 2;
/// Regularisation of the common coefficients towards 0, in squared errors.
const STRENGTH: f64 = 1.0;
/// Regularisation of a stage's coefficients towards the common ones, in squared errors.
const STAGE_STRENGTH: f64 = 20.0;
/// Number of rows after which residuals are more informative than their initial guess.
const GUESS_ROWS: f64 = 4.0;
/// Share of new rows that justifies computing the coefficients again.
const REFIT_SHARE: f64 = 0.02;
/// 90th percentile of the standard logistic distribution: the logarithm of 9.
const NINTH_DECILE: f64 = 2.197_224_577;
/// Minimum scale: estimates are never that certain.
const SCALE_MIN: f64 = 0.05;
/// Number of quantiles that represent the distribution above a bound.
const QUANTILES: usize = 16;

type Coefficients = [[f64; FEATURES]; TARGETS];

/// The stage of a program.
pub(crate) fn stage(steps: u32, returned: bool) -> usize {
    let by_steps = match steps {
        0..=3 => steps as usize,
        4..=5 => 4,
        6..=9 => 5,
        _ => 6,
    };
    if returned && steps > 0 {
        by_steps + 6
    } else {
        by_steps
    }
}

/// The errors of a stage's estimates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Residuals {
    /// Number of estimates that were compared.
    pub(crate) count: f64,
    /// Sums of actual and of estimated values, for tokens and tools: the estimate of a logarithm is
    /// of the median, and their ratio converts it to one of the mean.
    pub(crate) came: [f64; TARGETS],
    /// See `came`.
    pub(crate) estimated: [f64; TARGETS],
    /// 90th percentile of how far tokens were above their estimate, as logarithms.
    pub(crate) above: f64,
}

impl Default for Residuals {
    fn default() -> Self {
        Self {
            count: 0.0,
            came: [0.0; TARGETS],
            estimated: [0.0; TARGETS],
            above: 1.0,
        }
    }
}

impl Residuals {
    /// Spread of the tokens' logarithm around its estimate: the scale of a logistic distribution.
    fn scale(self) -> f64 {
        (self.above / NINTH_DECILE).max(SCALE_MIN)
    }

    fn add(&mut self, estimated: [f64; TARGETS], came: &Came, memory: f64) {
        self.count += 1.0;
        let kept = if self.count > memory {
            1.0 - 1.0 / memory
        } else {
            1.0
        };
        self.count = self.count.min(memory);
        for (target, logarithm) in estimated.into_iter().enumerate() {
            self.came[target] = self.came[target] * kept + came.means[target];
            self.estimated[target] = self.estimated[target] * kept + exp2(logarithm);
        }
        // At rest where one row in ten is above.
        // Slowly, because programs that end together are similar.
        let step = 1.0 / (1.0 + self.count / 16.0);
        self.above += (came.exceeded - 0.1) * step;
        self.above = self.above.clamp(0.0, 16.0);
    }

    /// The ratio of the mean to the median.
    fn to_mean(self, target: usize) -> f64 {
        // With few rows the ratio only counts partly, as their estimates were guesses.
        let guess = GUESS_ROWS * (self.estimated[target] + 1.0) / (self.count + 1.0);
        let ratio = (self.came[target] + guess) / (self.estimated[target] + guess);
        ratio.clamp(0.5, 4.0)
    }
}

/// The actual or expected rest of a program.
struct Came {
    /// As logarithms, for the regression.
    logarithms: [f64; TARGETS],
    /// Without logarithms, with the constants.
    means: [f64; TARGETS],
    /// The probability that tokens were above the 90th percentile.
    exceeded: f64,
}

/// The known rest of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rest {
    pub(crate) tokens: f64,
    pub(crate) tool_ms: f64,
    /// Whether both are lower bounds.
    pub(crate) is_cut_short: bool,
}

/// The distribution of a program's tokens, as logarithms, given a lower bound: values of equal
/// probability from the part of the logistic distribution above it.
struct Above([f64; QUANTILES]);

impl Above {
    fn new(estimated: f64, scale: f64, bound: f64, largest: f64) -> Self {
        let above_bound = 1.0 / (1.0 + exp((bound - estimated) / scale));
        Self(std::array::from_fn(|place| {
            let share = 1.0 - (place as f64 + 0.5) / QUANTILES as f64;
            let beyond = (above_bound * share).max(f64::MIN_POSITIVE);
            let value = estimated + scale * ln((1.0 - beyond) / beyond);
            value.min(largest).max(bound)
        }))
    }

    fn mean(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.0.iter().map(|value| of(*value)).sum::<f64>() / QUANTILES as f64
    }
}

/// The regression of a stage.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage {
    pub(crate) ridge: Ridge<FEATURES, TARGETS>,
    pub(crate) residuals: Residuals,
    /// The coefficients of the last fit.
    pub(crate) coefficients: Coefficients,
}

/// An estimate for one program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) tokens: f64,
    pub(crate) tokens_p90: f64,
    pub(crate) tool_ms: f64,
}

/// Regressions of all stages.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) all: Ridge<FEATURES, TARGETS>,
    pub(crate) stages: [Stage; STAGES],
    /// The largest target seen: estimates are limited to it.
    pub(crate) largest: [f64; TARGETS],
    guess: [f64; TARGETS],
    /// Number of rows since the coefficients were computed.
    pub(crate) unfitted: f64,
}

impl Model {
    /// A model with only a guess of remaining tokens and milliseconds.
    pub(crate) fn new(tokens: f64, tool_ms: f64) -> Self {
        let guess = targets(tokens, tool_ms);
        let mut model = Self {
            all: Ridge::default(),
            stages: std::array::from_fn(|_| Stage::default()),
            largest: guess,
            guess,
            unfitted: 0.0,
        };
        model.fit();
        model
    }

    /// Computes the coefficients.
    fn fit(&mut self) {
        let mut prior = [[0.0; FEATURES]; TARGETS];
        for (coefficients, guess) in prior.iter_mut().zip(self.guess) {
            coefficients[0] = guess;
            // Until something else is learnt, a program is like its group before.
            coefficients[HISTORY] = 1.0;
        }
        let all = self.all.fit(&prior, &[STRENGTH; FEATURES]);
        for stage in &mut self.stages {
            stage.coefficients = stage.ridge.fit(&all, &[STAGE_STRENGTH; FEATURES]);
        }
        self.unfitted = 0.0;
    }

    fn logarithms(&self, stage: &Stage, features: &Features) -> [f64; TARGETS] {
        let least = targets(0.0, 0.0);
        std::array::from_fn(|target| {
            let value = dot(&stage.coefficients[target], features);
            value.clamp(least[target], self.largest[target])
        })
    }

    /// The estimate for a program at a stage.
    pub(crate) fn estimate(&self, stage: usize, features: &Features) -> Estimate {
        let stage = &self.stages[stage];
        let [tokens, tool_ms] = self.logarithms(stage, features);
        let residuals = stage.residuals;
        let mean = (exp2(tokens) * residuals.to_mean(0) - TOKENS_SOFT).max(0.0);
        let p90 = exp2(tokens + residuals.above) - TOKENS_SOFT;
        Estimate {
            tokens: mean,
            tokens_p90: p90.max(mean),
            tool_ms: (exp2(tool_ms) * residuals.to_mean(1) - TOOL_MS_SOFT).max(0.0),
        }
    }

    /// Learns what remained of a program at a stage, after comparing it with the estimate. For one
    /// that was cut short it learns the expectation given the lower bound (as the regression of
    /// Buckley and James does, 1979). Returns the tokens that it learnt.
    pub(crate) fn learn(
        &mut self,
        place: usize,
        features: &Features,
        rest: Rest,
        memory: f64,
    ) -> f64 {
        let known = targets(rest.tokens, rest.tool_ms);
        let estimated = self.logarithms(&self.stages[place], features);
        for (largest, known) in self.largest.iter_mut().zip(known) {
            *largest = largest.max(known);
        }
        let residuals = self.stages[place].residuals;
        let came = if !rest.is_cut_short {
            let exceeds = known[0] - estimated[0] > residuals.above;
            Came {
                logarithms: known,
                means: known.map(exp2),
                exceeded: f64::from(u8::from(exceeds)),
            }
        } else if rest.tokens > 0.0 {
            self.at_least(estimated, known, residuals)
        } else {
            // Nothing is known about the part that was cut off.
            return (exp2(estimated[0]) - TOKENS_SOFT).max(0.0);
        };
        let stage = &mut self.stages[place];
        stage.residuals.add(estimated, &came, memory);
        stage.ridge.add(features, &came.logarithms, memory);
        self.all.add(features, &came.logarithms, memory);
        self.unfitted += 1.0;
        (exp2(came.logarithms[0]) - TOKENS_SOFT).max(0.0)
    }

    /// The expectation given a lower bound.
    fn at_least(
        &self,
        estimated: [f64; TARGETS],
        known: [f64; TARGETS],
        residuals: Residuals,
    ) -> Came {
        let above = Above::new(estimated[0], residuals.scale(), known[0], self.largest[0]);
        let tool_ms = estimated[1].max(known[1]);
        let exceeds = |value: f64| f64::from(u8::from(value - estimated[0] > residuals.above));
        Came {
            logarithms: [above.mean(|value| value), tool_ms],
            means: [above.mean(exp2), exp2(tool_ms)],
            exceeded: above.mean(exceeds),
        }
    }

    /// Computes the coefficients again if enough was learnt since.
    pub(crate) fn refit(&mut self) {
        if self.unfitted > self.all.rows() * REFIT_SHARE {
            self.fit();
        }
    }
}

fn targets(tokens: f64, tool_ms: f64) -> [f64; TARGETS] {
    [log2(tokens + TOKENS_SOFT), log2(tool_ms + TOOL_MS_SOFT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_above_a_bound_is_spread_as_the_distribution_is() {
        // Far below all values the bound has no effect: the distribution remains.
        let all = Above::new(10.0, 0.5, -20.0, 99.0);
        assert!((all.mean(|value| value) - 10.0).abs() < 1e-6);
        // The mean of the upper half of a logistic distribution: twice the logarithm of 2.
        let half = Above::new(10.0, 0.5, 10.0, 99.0).mean(|value| value);
        assert!((half - 10.0 - 0.5 * 1.386).abs() < 0.03, "{half}");
        // Far above, the tail is exponential.
        let tail = Above::new(10.0, 0.5, 20.0, 99.0).mean(|value| value);
        assert!((tail - 20.5).abs() < 0.03, "{tail}");
        let far = Above::new(10.0, 0.05, 120.0, 125.0);
        assert!(far.0.iter().all(|value| (120.0..=125.0).contains(value)));
        // Nothing is expected beyond the largest value seen.
        let most = Above::new(10.0, 0.5, 12.0, 12.0);
        assert!(most.0.iter().all(|value| (value - 12.0).abs() < 1e-12));
    }
}
