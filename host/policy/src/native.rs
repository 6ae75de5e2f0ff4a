//! Natively linked reference policies: the built-in default of each world, as used by the daemon
//! and the simulator.

use thunderagent_eviction::{Config, ThunderAgentEviction};
use treadle_core::programs::{PolicyAnswer, ProgramColumns, Purpose, Question};
use treadle_plugin::{ActingColumns, ActiveColumns, EvictionPolicy, Phase, WaitingColumns};

use crate::columns::phases_of;

/// The eviction world's default policy.
#[derive(Clone, Debug, Default)]
pub struct NativeEviction {
    policy: ThunderAgentEviction,
}

impl NativeEviction {
    /// A policy with a configuration other than the default.
    pub fn with_config(config: Config) -> Self {
        Self {
            policy: ThunderAgentEviction { config },
        }
    }

    /// A score for each program of the question.
    pub fn scores(&self, purpose: Purpose, c: &EvictionColumns) -> Vec<f64> {
        // The policy keeps only its configuration, so a copy answers the same.
        let mut policy = self.policy.clone();
        let scores = match purpose {
            Purpose::Weigh { .. } => policy.weigh(&ActingColumns {
                tokens: &c.tokens,
                phase_ms: &c.phase_ms,
                extra: &[],
            }),
            Purpose::Pause { .. } => policy.pause_order(&ActiveColumns {
                tokens: &c.tokens,
                phase: &c.phase,
                phase_ms: &c.phase_ms,
                steps: &c.steps,
                extra: &[],
            }),
            Purpose::Restore => policy.restore_order(&WaitingColumns {
                tokens: &c.tokens,
                phase: &c.phase,
                waited_ms: &c.waited_ms,
                steps: &c.steps,
                extra: &[],
            }),
            // Questions of other worlds: no preference.
            Purpose::Retain { .. }
            | Purpose::Route { .. }
            | Purpose::Migrate
            | Purpose::Preempt { .. } => Ok(vec![0.0; c.tokens.len()]),
        };
        // The default only refuses columns of unequal length, and these come from one table.
        scores.unwrap_or_else(|_| vec![0.0; c.tokens.len()])
    }

    /// The whole answer.
    pub fn answer(&self, question: &Question) -> PolicyAnswer {
        let columns = EvictionColumns::of(&question.programs);
        answer(question, &self.scores(question.purpose, &columns))
    }
}

/// A question's columns in the units of the policy contract.
#[derive(Clone, Debug, Default)]
pub struct EvictionColumns {
    /// Context, in tokens.
    pub tokens: Vec<u64>,
    /// The phase of each.
    pub phase: Vec<Phase>,
    /// Time in the present phase, in milliseconds.
    pub phase_ms: Vec<u64>,
    /// Time in the queue, in milliseconds.
    pub waited_ms: Vec<u64>,
    /// Steps finished.
    pub steps: Vec<u32>,
}

impl EvictionColumns {
    /// The columns of these programs, spans in milliseconds.
    pub fn of(programs: &ProgramColumns) -> Self {
        Self {
            tokens: programs.tokens.clone(),
            phase: phases_of(programs),
            phase_ms: programs.phase.iter().map(|span| span.millis()).collect(),
            waited_ms: programs.waited.iter().map(|span| span.millis()).collect(),
            steps: programs.steps.clone(),
        }
    }
}

/// The answer in the compact form that the core uses: an order, or weights. On equal scores the
/// earlier row wins.
pub fn answer(question: &Question, scores: &[f64]) -> PolicyAnswer {
    let programs = &question.programs.program;
    if matches!(question.purpose, Purpose::Weigh { .. }) {
        let ppm = |weight: f64| (weight.clamp(0.0, 1.0) * 1e6).round() as u32;
        let weights = programs
            .iter()
            .zip(scores)
            .map(|(p, w)| (*p, ppm(*w)))
            .collect();
        return PolicyAnswer::Weights { weights };
    }
    let mut rows: Vec<usize> = (0..programs.len().min(scores.len())).collect();
    rows.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    PolicyAnswer::Order {
        programs: rows.iter().map(|row| programs[*row]).collect(),
        scores: rows.iter().map(|row| scores[*row]).collect(),
        workers: Vec::new(),
        remaining_tokens: Vec::new(),
    }
}
