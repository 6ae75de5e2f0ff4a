//! Tokens before anyone has counted them: bytes per token, learnt per model
//! from prompts that engines have counted.

use std::collections::HashMap;
use std::sync::Mutex;

/// Bytes per token before anything was learnt.
const BYTES_PER_TOKEN_GUESS: f64 = 4.0;
/// Weight of a new sample in the moving average.
const SAMPLE_WEIGHT: f64 = 0.1;
/// Models remembered; more than that share the guess.
const MODELS_MAX: usize = 1_024;

/// Learns and applies bytes per token.
#[derive(Default)]
pub struct TokenEstimator {
    bytes_per_token: Mutex<HashMap<Box<str>, f64>>,
}

impl TokenEstimator {
    /// Tokens that `bytes` of prompt are taken to have.
    pub fn tokens(&self, model: Option<&str>, bytes: u64) -> u64 {
        let known = self.bytes_per_token.lock().ok();
        let ratio = known.and_then(|known| known.get(model.unwrap_or("")).copied());
        (bytes as f64 / ratio.unwrap_or(BYTES_PER_TOKEN_GUESS)).ceil() as u64
    }

    /// An engine counted `tokens` in a prompt of `bytes`.
    pub fn learn(&self, model: Option<&str>, bytes: u64, tokens: u64) {
        if bytes == 0 || tokens == 0 {
            return;
        }
        let Ok(mut known) = self.bytes_per_token.lock() else {
            return;
        };
        let sample = bytes as f64 / tokens as f64;
        let model = model.unwrap_or("");
        if let Some(ratio) = known.get_mut(model) {
            *ratio += SAMPLE_WEIGHT * (sample - *ratio);
        } else if known.len() < MODELS_MAX {
            known.insert(model.into(), sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_guessed_until_it_is_known() {
        let estimator = TokenEstimator::default();
        assert_eq!(estimator.tokens(Some("m"), 400), 100);
        estimator.learn(Some("m"), 300, 100);
        assert_eq!(estimator.tokens(Some("m"), 300), 100);
        assert_eq!(estimator.tokens(Some("other"), 400), 100);
    }

    #[test]
    fn later_samples_move_the_estimate_slowly() {
        let estimator = TokenEstimator::default();
        estimator.learn(None, 400, 100);
        estimator.learn(None, 200, 100);
        let tokens = estimator.tokens(None, 1_000);
        assert!((250..300).contains(&tokens), "{tokens}");
    }
}
