//! Judges finished programs.

use serde::Deserialize;
use treadle_plugin::{AnswerColumns, Policy, PolicyError, RewardPolicy, Scores};

/// One for the reference's answer, less a penalty for length.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExactMatch {
    extra: Vec<String>,
    /// What a thousand generated tokens cost.
    length_penalty: f64,
}

impl Default for ExactMatch {
    fn default() -> Self {
        Self {
            extra: Vec::new(),
            length_penalty: 0.125,
        }
    }
}

impl Policy for ExactMatch {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        if policy.length_penalty < 0.0 {
            return Err(PolicyError::invalid_config(
                "length_penalty is negative; give 0 or more",
            ));
        }
        Ok(policy)
    }
}

impl RewardPolicy for ExactMatch {
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError> {
        programs.check(self.extra.len())?;
        let pairs = programs.answer.iter().zip(programs.reference);
        let correct: Vec<f64> = pairs
            .map(|(answer, reference)| f64::from(answer.trim() == reference.trim()))
            .collect();
        let tokens = programs.output_tokens.iter();
        let length: Vec<f64> = tokens
            .map(|&tokens| -self.length_penalty * tokens as f64 / 1000.0)
            .collect();
        Ok(Scores {
            totals: correct.iter().zip(&length).map(|(a, b)| a + b).collect(),
            part_names: vec!["correct".to_owned(), "length".to_owned()],
            parts: [correct, length].concat(),
        })
    }
}

treadle_plugin::reward_policy!(ExactMatch);
