//! Prediction from the prompt only, as with a model that reads prompts but not the program's
//! progress (the model-based baseline of Heddle §7.2).
//!
//! A ridge regression learns, from finished programs, the logarithm of a program's total tokens
//! from its prompt: its length, and natively, with a second extra column, another model's reading
//! of its text: its difficulty on any scale around 0. A program's own progress is only subtracted.

mod config;

pub use config::Config;

use treadle_plugin::exact::{exp2, log2};
use treadle_plugin::ridge::{Ridge, dot};
use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

const FEATURES: usize = 5;
const TARGETS: usize = 2;
const MARK: &[u8; 8] = b"prompt-1";
/// Regularisation of coefficients towards their prior, in squared errors.
const STRENGTH: f64 = 1.0;
/// Scores are clamped to plus and minus this.
const SCORE_MAX: f64 = 8.0;
/// Number of standard deviations above the median that one program in ten of a lognormal
/// distribution exceeds.
const NINTH_DECILE: f64 = 1.2816;

/// The policy and what it has learnt.
#[derive(Debug, Clone, Default)]
pub struct PromptOnlyPrediction {
    config: Config,
    ridge: Ridge<FEATURES, TARGETS>,
    /// Sum of the squared errors of the tokens' logarithm, and their number.
    errors: [f64; 2],
    coefficients: [[f64; FEATURES]; TARGETS],
}

impl PromptOnlyPrediction {
    /// A policy that has learnt nothing.
    pub fn new(config: Config) -> Self {
        let mut policy = Self {
            config,
            ..Self::default()
        };
        policy.fit();
        policy
    }

    fn fit(&mut self) {
        let guess = targets(self.config.total_tokens, self.config.total_tool_s * 1_000.0);
        let mut prior = [[0.0; FEATURES]; TARGETS];
        for (coefficients, guess) in prior.iter_mut().zip(guess) {
            coefficients[0] = guess;
        }
        self.coefficients = self.ridge.fit(&prior, &[STRENGTH; FEATURES]);
    }

    fn features(index: usize, rows: usize, extra: &[f32]) -> [f64; FEATURES] {
        let read = |place: usize| {
            let value = f64::from(*extra.get(place * rows + index)?);
            value.is_finite().then_some(value)
        };
        let length = read(0)
            .filter(|tokens| *tokens >= 0.0)
            .map_or(0.0, |tokens| (log2(tokens + 16.0) - 9.0) / 2.0);
        let score = read(1).unwrap_or(0.0).clamp(-SCORE_MAX, SCORE_MAX);
        [1.0, length, length * length, score, score * score]
    }

    /// Variance of the error of a logarithm of tokens.
    fn variance(&self) -> f64 {
        (self.errors[0] + 1.0) / (self.errors[1] + 1.0)
    }
}

/// Logarithms of a program's tokens and milliseconds in tools.
fn targets(tokens: f64, tool_ms: f64) -> [f64; TARGETS] {
    [log2(tokens + 1.0), log2(tool_ms + 1.0)]
}

impl Policy for PromptOnlyPrediction {
    type Config = Config;

    const COLUMNS: &'static [&'static str] = &["prompt-tokens"];

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        let mut bytes = MARK.to_vec();
        let numbers = self.errors.into_iter().chain(self.ridge.numbers());
        bytes.extend(numbers.flat_map(f64::to_le_bytes));
        Ok(bytes)
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        let invalid =
            || PolicyError::failed("the snapshot can't be read; start without it".to_owned());
        let (words, beyond) = snapshot.strip_prefix(MARK).ok_or_else(invalid)?.as_chunks();
        let numbers: Vec<f64> = words.iter().map(|word| f64::from_le_bytes(*word)).collect();
        let sound = |number: &f64| number.abs() < 1e150;
        if !beyond.is_empty() || numbers.len() < 3 || !numbers.iter().all(sound) {
            return Err(invalid());
        }
        let mut rest = numbers[2..].iter().copied();
        let ridge = Ridge::from_numbers(&mut rest).filter(|ridge| ridge.rows() >= 0.0);
        let (Some(ridge), None) = (ridge, rest.next()) else {
            return Err(invalid());
        };
        if numbers[..2].iter().any(|number| *number < 0.0) {
            return Err(invalid());
        }
        self.errors = [numbers[0], numbers[1]];
        self.ridge = ridge;
        self.fit();
        Ok(())
    }
}

impl PredictionPolicy for PromptOnlyPrediction {
    const FUNCTIONS: &'static [&'static str] = &["predict", "learn"];

    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        let variance = self.variance();
        let above = exp2(NINTH_DECILE * variance.sqrt());
        // The mean of a lognormal distribution is above its median.
        let to_mean = if self.ridge.rows() > 0.0 {
            exp2((variance * std::f64::consts::LN_2 / 2.0).min(2.0))
        } else {
            1.0
        };
        let mut estimates = Estimates::default();
        for row in 0..programs.len() {
            let features = Self::features(row, programs.len(), programs.extra);
            let median = |target: usize| {
                let logarithm = dot(&self.coefficients[target], &features);
                (exp2(logarithm.clamp(0.0, 40.0)) - 1.0).max(0.0)
            };
            let left = |total: f64, done: u64| (total - done as f64).max(0.0);
            let done = programs.output_tokens[row];
            let tokens = left(median(0) * to_mean, done);
            estimates.remaining_tokens.push(tokens);
            estimates
                .remaining_tokens_p90
                .push(left(median(0) * above, done).max(tokens));
            let tool_ms = left(median(1), programs.tool_ms[row]);
            estimates.remaining_tool_s.push(tool_ms / 1_000.0);
        }
        Ok(estimates)
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        let memory = f64::from(self.config.memory);
        for program in programs.programs() {
            let row = program.start;
            let features = Self::features(row, programs.len(), programs.extra);
            let tool_ms = programs.tool_ms[row].saturating_add(programs.remaining_tool_ms[row]);
            let came = targets(programs.total_tokens(row) as f64, tool_ms as f64);
            let error = came[0] - dot(&self.coefficients[0], &features);
            self.errors = [self.errors[0] + error * error, self.errors[1] + 1.0];
            if self.errors[1] > memory {
                self.errors = self.errors.map(|sum| sum * (1.0 - 1.0 / memory));
            }
            self.ridge.add(&features, &came, memory);
        }
        self.fit();
        Ok(())
    }
}

treadle_plugin::prediction_policy!(PromptOnlyPrediction);

#[cfg(test)]
mod tests;
