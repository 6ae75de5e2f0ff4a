//! The simplest reward: 1 for an answer that equals its reference, ignoring surrounding blanks,
//! else 0. A baseline.

use treadle_plugin::{AnswerColumns, NoConfig, Policy, PolicyError, RewardPolicy, Scores};

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct ExactMatchReward;

impl Policy for ExactMatchReward {
    type Config = NoConfig;

    fn with_config(_: NoConfig) -> Result<Self, PolicyError> {
        Ok(Self)
    }
}

impl RewardPolicy for ExactMatchReward {
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError> {
        let rows = programs.answer.iter().zip(programs.reference);
        let totals = rows.map(|(answer, reference)| {
            let (answer, reference) = (answer.trim(), reference.trim());
            f64::from(u8::from(!reference.is_empty() && answer == reference))
        });
        Ok(Scores {
            totals: totals.collect(),
            ..Scores::default()
        })
    }
}

treadle_plugin::reward_policy!(ExactMatchReward);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().reward::<ExactMatchReward>();
    }

    #[test]
    fn only_an_equal_answer_earns() {
        let answer = ["42 ", "42.0", "", "Yes"].map(str::to_owned);
        let reference = ["42", "42", "", "yes"].map(str::to_owned);
        let scores = ExactMatchReward
            .score(&AnswerColumns {
                answer: &answer,
                reference: &reference,
                output_tokens: &[1; 4],
                steps: &[1; 4],
                extra: &[],
            })
            .unwrap();
        assert_eq!(scores.totals, [1.0, 0.0, 0.0, 0.0]);
    }
}
