//! The regression: one for all programs, and one for each stage that keeps close to it
//! where the stage has few rows.

use treadle_plugin::exact::{exp2, log2};
use treadle_plugin::ridge::{Ridge, dot};

use crate::features::{FEATURES, Features, HISTORY, TOKENS_SOFT, TOOL_MS_SOFT};

/// Stages of a program by its finished steps: 0, 1, 2, 3, 4 to 5, 6 to 9, 10 and more.
pub(crate) const STAGES: usize = 7;
/// What is estimated: remaining tokens, remaining time in tools.
const TARGETS: usize = 2;
/// Squared errors that a coefficient of all programs being off 0 by one costs.
const STRENGTH: f64 = 1.0;
/// The same for a stage's being off that of all programs.
const STAGE_STRENGTH: f64 = 20.0;
/// Rows after which residuals are more informative than their guess.
const GUESS_ROWS: f64 = 4.0;
/// Share of new rows that makes it worth to solve again.
const REFIT_SHARE: f64 = 0.02;

type Coefficients = [[f64; FEATURES]; TARGETS];

/// The stage of a program.
pub(crate) fn stage(steps: u32) -> usize {
    match steps {
        0..=3 => steps as usize,
        4..=5 => 4,
        6..=9 => 5,
        _ => 6,
    }
}

/// How estimates of a stage came true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Residuals {
    /// Estimates that were compared.
    pub(crate) count: f64,
    /// Sums of what came and of what was estimated, for tokens and tools: the estimate of
    /// a logarithm is of the median, their ratio makes it one of the mean.
    pub(crate) came: [f64; TARGETS],
    /// See `came`.
    pub(crate) estimated: [f64; TARGETS],
    /// 90th percentile of how far tokens came above their estimate, as logarithms.
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
    fn add(&mut self, estimated: [f64; TARGETS], came: [f64; TARGETS], memory: f64) {
        self.count += 1.0;
        let kept = if self.count > memory {
            1.0 - 1.0 / memory
        } else {
            1.0
        };
        self.count = self.count.min(memory);
        for target in 0..TARGETS {
            self.came[target] = self.came[target] * kept + exp2(came[target]);
            self.estimated[target] = self.estimated[target] * kept + exp2(estimated[target]);
        }
        // At rest where one row in ten is above.
        // Slowly: programs that end together are alike.
        let step = 1.0 / (1.0 + self.count / 16.0);
        let above = came[0] - estimated[0];
        self.above += if above > self.above {
            0.9 * step
        } else {
            -0.1 * step
        };
        self.above = self.above.clamp(0.0, 16.0);
    }

    /// The mean as a multiple of the median.
    fn to_mean(self, target: usize) -> f64 {
        // Few rows count as far as they go; estimates of them were guesses.
        let guess = GUESS_ROWS * (self.estimated[target] + 1.0) / (self.count + 1.0);
        let ratio = (self.came[target] + guess) / (self.estimated[target] + guess);
        ratio.clamp(0.5, 4.0)
    }
}

/// A stage's part.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage {
    pub(crate) ridge: Ridge<FEATURES, TARGETS>,
    pub(crate) residuals: Residuals,
    /// What the last fit gave.
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
    /// The largest target seen: nothing is expected beyond.
    pub(crate) largest: [f64; TARGETS],
    guess: [f64; TARGETS],
    /// Rows since the coefficients were computed.
    pub(crate) unfitted: f64,
}

impl Model {
    /// A model that knows nothing but a guess of remaining tokens and milliseconds.
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

    /// Computes the coefficients from what was learnt.
    fn fit(&mut self) {
        let mut prior = [[0.0; FEATURES]; TARGETS];
        for (coefficients, guess) in prior.iter_mut().zip(self.guess) {
            coefficients[0] = guess;
            // As long as nothing else was learnt, a program is as its group was before.
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

    /// The estimate for a program after so many steps.
    pub(crate) fn estimate(&self, steps: u32, features: &Features) -> Estimate {
        let stage = &self.stages[stage(steps)];
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

    /// Learns what remained of a program, after comparing it with the estimate.
    pub(crate) fn learn(
        &mut self,
        steps: u32,
        features: &Features,
        tokens: f64,
        tool_ms: f64,
        memory: f64,
    ) {
        let came = targets(tokens, tool_ms);
        let place = stage(steps);
        let estimated = self.logarithms(&self.stages[place], features);
        for (largest, came) in self.largest.iter_mut().zip(came) {
            *largest = largest.max(came);
        }
        let stage = &mut self.stages[place];
        stage.residuals.add(estimated, came, memory);
        stage.ridge.add(features, &came, memory);
        self.all.add(features, &came, memory);
        self.unfitted += 1.0;
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
