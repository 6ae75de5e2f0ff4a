//! Estimates of how many tokens a prompt has, before its engine has counted it.
//!
//! A prompt costs tokens in three ways: once for the request, once for each message (the chat
//! template), and for each byte of text. The three costs are learnt per model by weighted least
//! squares from the prompts that engines have counted. A sample's weight grows with its size, so
//! that a first request of two bytes informs the fixed costs and not the cost of a byte; outliers
//! count for less.
//!
//! An estimate decides what a prompt is charged until its engine counts it, and never refuses one.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of models; the one counted least recently is dropped.
const MODELS_MAX: usize = 256;
/// What a request, a message and a byte cost before anything was learnt.
const PRIOR: [f64; 3] = [4.0, 6.0, 0.25];
/// Weight of the prior, against samples: small, so that a few dozen prompts decide. The difference
/// of a first prompt from its estimate goes to the fixed costs if it is shorter than some 300
/// bytes, otherwise to its bytes.
const PRIOR_WEIGHT: [f64; 3] = [0.000_1, 0.001, 10.0];
/// Bounds on each cost.
const COST_MAX: [f64; 3] = [4_096.0, 64.0, 1.0];
/// The least that a byte costs.
const BYTE_COST_MIN: f64 = 1.0 / 16.0;
/// Factor on earlier samples with each further one: some 250 count.
const REMEMBERED: f64 = 1.0 - 1.0 / 256.0;
/// A count within this factor of the estimate still counts fully.
const USUAL_RATIO: f64 = 2.0;
/// Tokens per message and request beyond one per byte above which a count must include attachments.
const TEXT_TOKENS_MAX: u64 = 256;

/// The size of a prompt that came as text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TextSize {
    /// Bytes of text, tool definitions included, attachments excluded.
    pub bytes: u64,
    /// Messages; 0 for plain text.
    pub messages: u32,
}

impl TextSize {
    /// The difference from an earlier prompt that it continues; `None` if it does not.
    fn beyond(self, earlier: Self) -> Option<Self> {
        Some(Self {
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            messages: self.messages.checked_sub(earlier.messages)?,
        })
    }
}

/// A prompt as its engine counted it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CountedPrompt {
    /// Its size.
    pub size: TextSize,
    /// Its tokens.
    pub tokens: u64,
}

/// The token costs of each model's prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenModels {
    models: BTreeMap<Box<str>, TokenModel>,
    /// Samples seen.
    samples: u64,
}

impl TokenModels {
    /// True without samples.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Estimated tokens of a whole prompt.
    pub fn prompt_tokens(&self, model: &str, size: TextSize) -> u64 {
        self.tokens(model, 1.0, size)
    }

    /// Estimated tokens of a part of a prompt.
    pub fn part_tokens(&self, model: &str, size: TextSize) -> u64 {
        self.tokens(model, 0.0, size)
    }

    /// Tokens of a prompt whose program had an earlier one counted: if it continues that one, only
    /// the difference is estimated.
    pub fn next_tokens(&self, model: &str, size: TextSize, counted: Option<CountedPrompt>) -> u64 {
        let more = counted.and_then(|earlier| Some((earlier, size.beyond(earlier.size)?)));
        match more {
            Some((earlier, more)) => earlier.tokens.saturating_add(self.part_tokens(model, more)),
            None => self.prompt_tokens(model, size),
        }
    }

    fn tokens(&self, model: &str, requests: f64, size: TextSize) -> u64 {
        let costs = self.models.get(model).map_or(PRIOR, TokenModel::costs);
        cost(costs, amounts(requests, size)).ceil() as u64
    }

    /// Adds a sample: an engine counted `tokens` in a prompt of this size.
    pub(super) fn learn(&mut self, model: &str, size: TextSize, tokens: u64) {
        let fixed = TEXT_TOKENS_MAX.saturating_mul(u64::from(size.messages) + 1);
        let is_text = size.bytes > 0 && tokens > 0;
        if !is_text || tokens > size.bytes.saturating_add(fixed) {
            return;
        }
        self.samples += 1;
        if !self.models.contains_key(model) {
            self.make_room();
            self.models.insert(model.into(), TokenModel::default());
        }
        if let Some(known) = self.models.get_mut(model) {
            known.learn(size, tokens as f64);
            known.counted_at = self.samples;
        }
    }

    fn make_room(&mut self) {
        if self.models.len() < MODELS_MAX {
            return;
        }
        let oldest = self.models.iter().min_by_key(|(_, known)| known.counted_at);
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.models.remove(&name);
        }
    }
}

/// Weighted sums over the samples of one model: the normal equations of its costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct TokenModel {
    /// Products of a request, a message and a byte with one another, by rows of the upper
    /// triangle.
    #[serde(with = "bits")]
    products: [f64; 6],
    /// Products of the same with the tokens counted.
    #[serde(with = "bits")]
    counts: [f64; 3],
    /// The number of its last sample.
    counted_at: u64,
}

impl TokenModel {
    fn learn(&mut self, size: TextSize, tokens: f64) {
        let amounts = amounts(1.0, size);
        let expected = cost(self.costs(), amounts).max(1.0);
        let ratio = (tokens / expected).max(expected / tokens);
        let trust = (USUAL_RATIO - 1.0) / (ratio - 1.0).max(USUAL_RATIO - 1.0);
        let weight = trust / tokens;
        let mut at = 0;
        for row in 0..3 {
            for column in row..3 {
                let product = weight * amounts[row] * amounts[column];
                self.products[at] = self.products[at] * REMEMBERED + product;
                at += 1;
            }
            self.counts[row] = self.counts[row] * REMEMBERED + weight * amounts[row] * tokens;
        }
    }

    /// The costs of a request, a message and a byte.
    fn costs(&self) -> [f64; 3] {
        let [rr, rm, rb, mm, mb, bb] = self.products;
        let [wr, wm, wb] = PRIOR_WEIGHT;
        let (rr, mm, bb) = (rr + wr, mm + wm, bb + wb);
        let y = [0, 1, 2].map(|i| self.counts[i] + PRIOR_WEIGHT[i] * PRIOR[i]);
        // Cramer's rule; the prior keeps the determinant above zero.
        let minor = [mm * bb - mb * mb, rm * bb - mb * rb, rm * mb - mm * rb];
        let determinant = rr * minor[0] - rm * minor[1] + rb * minor[2];
        let request = y[0] * minor[0] - rm * (y[1] * bb - mb * y[2]) + rb * (y[1] * mb - mm * y[2]);
        let message = rr * (y[1] * bb - mb * y[2]) - y[0] * minor[1] + rb * (rm * y[2] - y[1] * rb);
        let request = bounded(request / determinant, 0.0, COST_MAX[0]);
        let message = bounded(message / determinant, 0.0, COST_MAX[1]);
        // The cost of a byte once the fixed costs are clamped.
        let byte = (y[2] - rb * request - mb * message) / bb;
        [request, message, bounded(byte, BYTE_COST_MIN, COST_MAX[2])]
    }
}

fn amounts(requests: f64, size: TextSize) -> [f64; 3] {
    [requests, f64::from(size.messages), size.bytes as f64]
}

fn cost(costs: [f64; 3], amounts: [f64; 3]) -> f64 {
    costs[0] * amounts[0] + costs[1] * amounts[1] + costs[2] * amounts[2]
}

/// Clamps a cost; NaN becomes the lower bound.
fn bounded(cost: f64, least: f64, most: f64) -> f64 {
    if cost > least { cost.min(most) } else { least }
}

/// Serializes floats by their bits, so that a snapshot is exact.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, const N: usize>(
        floats: &[f64; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bits: Vec<u64> = floats.iter().map(|float| float.to_bits()).collect();
        bits.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[f64; N], D::Error> {
        let bits = Vec::<u64>::deserialize(deserializer)?;
        let floats: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        let sized = floats.try_into();
        sized.map_err(|_| serde::de::Error::custom("a token model with sums missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chat(bytes: u64, messages: u32) -> TextSize {
        TextSize { bytes, messages }
    }

    fn error(estimate: u64, truth: u64) -> f64 {
        (estimate as f64 - truth as f64).abs() / truth as f64
    }

    #[test]
    fn a_first_request_of_two_bytes_does_not_distort_long_prompts() {
        let mut models = TokenModels::default();
        models.learn("m", chat(6, 1), 13);
        let tokens = models.prompt_tokens("m", chat(12_482, 2));
        assert!(error(tokens, 3_131) < 0.02, "{tokens}");
        let tokens = models.prompt_tokens("m", chat(400_000, 1));
        assert!(error(tokens, 100_013) < 0.02, "{tokens}");
    }

    #[test]
    fn attachments_and_impossible_counts_are_no_samples() {
        let mut models = TokenModels::default();
        models.learn("m", chat(20, 1), 1_500_000);
        models.learn("m", chat(0, 1), 10);
        models.learn("m", chat(10, 1), 0);
        assert!(models.is_empty());
    }

    #[test]
    fn a_wild_count_moves_the_estimate_little() {
        let mut models = TokenModels::default();
        for _ in 0..20 {
            models.learn("m", chat(8_000, 4), 2_040);
        }
        models.learn("m", chat(8_000, 4), 8_000);
        let tokens = models.prompt_tokens("m", chat(8_000, 4));
        assert!(error(tokens, 2_040) < 0.1, "{tokens}");
    }

    #[test]
    fn what_continues_a_counted_prompt_is_estimated_by_what_is_new() {
        let models = TokenModels::default();
        let counted = CountedPrompt {
            size: chat(4_000, 2),
            tokens: 3_000,
        };
        assert_eq!(
            models.next_tokens("m", chat(4_400, 3), Some(counted)),
            3_106
        );
        let shorter = models.next_tokens("m", chat(400, 1), Some(counted));
        assert_eq!(shorter, 110, "a history that was summed up");
    }

    #[test]
    fn names_of_models_are_bounded() {
        let mut models = TokenModels::default();
        for name in 0..2 * MODELS_MAX {
            models.learn(&name.to_string(), chat(400, 1), 110);
            models.learn("used", chat(4_000, 1), 2_000);
        }
        assert_eq!(models.models.len(), MODELS_MAX);
        assert!(models.models.contains_key("used"));
    }

    #[test]
    fn a_snapshot_holds_every_digit() {
        let mut models = TokenModels::default();
        models.learn("m", chat(777, 3), 291);
        let json = serde_json::to_string(&models).unwrap();
        assert_eq!(serde_json::from_str::<TokenModels>(&json).unwrap(), models);
    }

    proptest! {
        /// Costs are found for any tokenizer and any order of samples.
        #[test]
        fn costs_are_found(
            request in 0_u32..200,
            message in 0_u32..20,
            bytes_per_token in 1.2_f64..6.0,
            first in proptest::collection::vec((1_u64..40, 1_u32..3), 0..4),
            sizes in proptest::collection::vec((2_000_u64..60_000, 1_u32..30), 12..40),
        ) {
            let truth = |size: TextSize| {
                let text = (size.bytes as f64 / bytes_per_token).ceil() as u64;
                u64::from(request) + u64::from(message * size.messages) + text
            };
            let mut models = TokenModels::default();
            for (bytes, messages) in first.into_iter().chain(sizes) {
                let size = chat(bytes, messages);
                models.learn("m", size, truth(size));
            }
            for size in [chat(5_000, 2), chat(20_000, 10), chat(100_000, 40)] {
                let tokens = models.prompt_tokens("m", size);
                prop_assert!(error(tokens, truth(size)) < 0.1, "{} for {}", tokens, truth(size));
            }
        }
    }
}
