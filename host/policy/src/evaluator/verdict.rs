//! An answer out of the judges' scores, in the smallest form that the core uses.

use super::Answer;
use super::panel::Panel;
use treadle_core::{Fate, Purpose, Question, Verdict, Voices};
use treadle_model::PolicyRef;

/// What a value of an answer about caches stands for.
pub(super) fn fate(value: f64) -> Fate {
    Fate::of_code(value as u8).unwrap_or(Fate::Keep)
}

/// The answer of `policies`, the panel's judges in their order, with one score,
/// weight or fate per row. On equal scores the row that comes first wins; caches that
/// stay are left out.
pub(super) fn put_together(
    question: &Question,
    panel: &Panel,
    mut policies: Vec<PolicyRef>,
    scores: &[f64],
) -> Answer {
    let programs = &question.programs.program;
    let mut rows: Vec<usize> = (0..programs.len().min(scores.len())).collect();
    let verdict = match question.purpose {
        Purpose::Weigh { .. } => {
            let ppm = |weight: f64| (weight.clamp(0.0, 1.0) * 1e6).round() as u32;
            let weights = rows.iter().map(|row| (programs[*row], ppm(scores[*row])));
            Verdict::Weights {
                weights: weights.collect(),
            }
        }
        Purpose::Retain { .. } => {
            rows.retain(|row| fate(scores[*row]) != Fate::Keep);
            let fates = rows.iter().map(|row| (programs[*row], fate(scores[*row])));
            Verdict::Fates {
                fates: fates.collect(),
            }
        }
        _ => {
            rows.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
            Verdict::Order {
                programs: rows.iter().map(|row| programs[*row]).collect(),
                scores: rows.iter().map(|row| scores[*row]).collect(),
                workers: Vec::new(),
                remaining_tokens: Vec::new(),
            }
        }
    };
    let judge_of = panel.judge_of();
    let judged_by = rows.iter().filter_map(|row| judge_of.get(*row).copied());
    Answer {
        policy: policies.remove(0),
        verdict,
        voices: Voices {
            judges: policies,
            judged_by: judged_by.collect(),
            ..Voices::default()
        },
    }
}
