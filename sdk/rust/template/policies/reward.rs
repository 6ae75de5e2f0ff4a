//! Judges finished programs.

use treadle_plugin::{AnswerColumns, Policy, PolicyError, RewardPolicy, Scores};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// What a thousand generated tokens cost.
        length_penalty: f64 = 0.125, 0.0..=1e3;
    }
}

/// One for the reference's answer, less a penalty for length.
#[derive(Debug, Clone, Default)]
pub struct ExactMatch {
    config: Config,
}

impl Policy for ExactMatch {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl RewardPolicy for ExactMatch {
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError> {
        let pairs = programs.answer.iter().zip(programs.reference);
        let correct: Vec<f64> = pairs
            .map(|(answer, reference)| f64::from(answer.trim() == reference.trim()))
            .collect();
        let tokens = programs.output_tokens.iter();
        let length: Vec<f64> = tokens
            .map(|&tokens| -self.config.length_penalty * tokens as f64 / 1000.0)
            .collect();
        Ok(Scores {
            totals: correct.iter().zip(&length).map(|(a, b)| a + b).collect(),
            part_names: vec!["correct".to_owned(), "length".to_owned()],
            parts: [correct, length].concat(),
        })
    }
}

treadle_plugin::reward_policy!(ExactMatch);
