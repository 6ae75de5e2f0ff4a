//! Answers built from the policies' scores, in the compact form that the core uses.

use super::Answer;
use super::assignment::Assignment;
use treadle_core::programs::{Attribution, CacheAction, PolicyAnswer, Purpose, Question};
use treadle_model::PolicyRef;

/// The cache action that a value stands for.
pub(super) fn action(value: f64) -> CacheAction {
    CacheAction::of_code(value as u8).unwrap_or(CacheAction::Keep)
}

/// One score for each row.
pub(super) struct Scored {
    pub(super) scores: Vec<f64>,
    /// The sort keys of the rows if several policies gave scores, whose scales differ.
    pub(super) rank: Option<Vec<f64>>,
}

impl Scored {
    pub(super) fn in_order_of(scores: Vec<f64>) -> Self {
        Self { scores, rank: None }
    }
}

/// The answer of `policies`, in the order of the assignment, with one score, weight or cache action
/// per row. On equal scores the earlier row wins; caches that stay are left out.
pub(super) fn put_together(
    question: &Question,
    assignment: &Assignment,
    mut policies: Vec<PolicyRef>,
    given: &Scored,
) -> Answer {
    let scores = &given.scores;
    let rank = given.rank.as_ref().unwrap_or(scores);
    let programs = &question.programs.program;
    let mut rows: Vec<usize> = (0..programs.len().min(scores.len())).collect();
    let answer = match question.purpose {
        Purpose::Weigh { .. } => {
            let ppm = |weight: f64| (weight.clamp(0.0, 1.0) * 1e6).round() as u32;
            let weights = rows.iter().map(|row| (programs[*row], ppm(scores[*row])));
            PolicyAnswer::Weights {
                weights: weights.collect(),
            }
        }
        Purpose::Retain { .. } => {
            rows.retain(|row| action(scores[*row]) != CacheAction::Keep);
            let actions = rows
                .iter()
                .map(|row| (programs[*row], action(scores[*row])));
            PolicyAnswer::CacheActions {
                actions: actions.collect(),
            }
        }
        _ => {
            rows.sort_by(|a, b| rank[*b].total_cmp(&rank[*a]).then(a.cmp(b)));
            PolicyAnswer::Order {
                programs: rows.iter().map(|row| programs[*row]).collect(),
                scores: rows.iter().map(|row| scores[*row]).collect(),
                workers: Vec::new(),
                remaining_tokens: Vec::new(),
            }
        }
    };
    let assignee_of = assignment.assignee_of();
    let answered_by = rows.iter().filter_map(|row| assignee_of.get(*row).copied());
    Answer {
        policy: policies.remove(0),
        answer,
        attribution: Attribution {
            policies,
            answered_by: answered_by.collect(),
            ..Attribution::default()
        },
    }
}
