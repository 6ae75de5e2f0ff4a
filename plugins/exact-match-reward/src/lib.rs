//! The simplest reward: 1 for an answer that equals its reference, blanks around both
//! aside, else 0. Selects the best rewards, the freshest among equals. A baseline to
//! compare with.

use serde::Deserialize;
use treadle_plugin::{AnswerColumns, CandidateColumns, Policy, PolicyError, RewardPolicy, Scores};

/// The policy and its configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExactMatchReward {
    extra: Vec<String>,
}

impl Policy for ExactMatchReward {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        serde_json::from_str(json).map_err(|error| PolicyError::invalid_config(error.to_string()))
    }
}

impl RewardPolicy for ExactMatchReward {
    fn score(&mut self, programs: &AnswerColumns<'_>) -> Result<Scores, PolicyError> {
        programs.check(self.extra.len())?;
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

    fn select(&mut self, programs: &CandidateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        programs.check(self.extra.len())?;
        let mut rows: Vec<usize> = (0..programs.len()).collect();
        rows.sort_by(|&left, &right| {
            let (reward, staleness) = (programs.reward, programs.staleness);
            reward[right]
                .total_cmp(&reward[left])
                .then(staleness[left].cmp(&staleness[right]))
        });
        rows.truncate(programs.wanted as usize);
        Ok(rows.into_iter().map(|row| row as u32).collect())
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
        let scores = ExactMatchReward::default()
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

    #[test]
    fn the_best_are_selected_and_among_equals_the_freshest() {
        let chosen = ExactMatchReward::default().select(&CandidateColumns {
            group: &[1, 1, 2],
            reward: &[0.0, 1.0, 1.0],
            staleness: &[0, 3, 1],
            output_tokens: &[1; 3],
            wanted: 2,
            extra: &[],
        });
        assert_eq!(chosen, Ok(vec![2, 1]));
    }
}
