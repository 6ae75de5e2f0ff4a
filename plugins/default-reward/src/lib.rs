//! The default reward.
//!
//! An answer earns 1 if it equals its reference: as text, ignoring case and surrounding blanks and
//! punctuation, or as a number. In a long answer only the part marked as the final one counts
//! (`\boxed{..}`, `####`, "answer is"). The parts `text` and `number` show which comparison
//! matched; `length`, present with `length_penalty`, is the penalty for a long answer.

mod answer;
mod config;

pub use config::Config;

use treadle_plugin::{AnswerColumns, Policy, PolicyError, RewardPolicy, Scores};

use answer::Compared;

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone, Default)]
pub struct DefaultReward {
    /// The configuration.
    pub config: Config,
}

impl Policy for DefaultReward {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl RewardPolicy for DefaultReward {
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError> {
        let rows = programs.answer.iter().zip(programs.reference);
        let compared: Vec<Compared> = rows
            .map(|(answer, reference)| answer::compare(answer, reference, self.config.tolerance))
            .collect();
        let as_number = |holds: bool| f64::from(u8::from(holds));
        let mut parts: Vec<f64> = compared.iter().map(|row| as_number(row.text)).collect();
        parts.extend(compared.iter().map(|row| as_number(row.number)));
        let mut part_names = vec!["text".to_owned(), "number".to_owned()];
        let mut totals: Vec<f64> = compared
            .iter()
            .map(|row| as_number(row.text || row.number))
            .collect();
        if self.config.length_penalty > 0.0 {
            part_names.push("length".to_owned());
            for (total, &tokens) in totals.iter_mut().zip(programs.output_tokens) {
                let cost = self.config.length_penalty * tokens as f64 / 1_000.0;
                *total -= cost;
                parts.push(-cost);
            }
        }
        Ok(Scores {
            totals,
            part_names,
            parts,
        })
    }
}

treadle_plugin::reward_policy!(DefaultReward);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"length_penalty": 0.1}"#] {
            Harness::new(config).by_row().reward::<DefaultReward>();
        }
    }

    #[test]
    fn parts_tell_why_and_length_costs() {
        let answer = ["Yes.", "so the answer is 42"].map(str::to_owned);
        let reference = ["yes", "42.0"].map(str::to_owned);
        let mut policy = DefaultReward::configure(r#"{"length_penalty": 0.125}"#).unwrap();
        let scores = policy
            .score(&AnswerColumns {
                answer: &answer,
                reference: &reference,
                output_tokens: &[0, 2_000],
                steps: &[1, 1],
                extra: &[],
            })
            .unwrap();
        assert_eq!(scores.totals, [1.0, 0.75]);
        assert_eq!(scores.part_names, ["text", "number", "length"]);
        assert_eq!(scores.parts, [1.0, 0.0, 0.0, 1.0, 0.0, -0.25]);
    }
}
