//! Answers of policies, and the core's own where none came.

use crate::timers::Timer;
use crate::{Core, Purpose, Verdict};
use treadle_model::{AskId, PolicyRef, ProgramId};

impl Core {
    pub(crate) fn policy_answered(&mut self, ask: AskId, policy: &PolicyRef, verdict: &Verdict) {
        // An answer that comes after the deadline finds its question gone.
        let Some(open) = self.state.asks.remove(&ask) else {
            return;
        };
        self.state.timers.disarm(open.deadline, Timer::Ask(ask));
        match (open.purpose, verdict) {
            (Purpose::Weigh { worker }, Verdict::Weights { weights }) => {
                for (program, ppm) in weights {
                    self.weigh(*program, *ppm);
                }
                self.pause_weightless(worker, weights, policy);
                self.relieve(worker);
            }
            (
                Purpose::Pause {
                    worker,
                    excess_tokens,
                },
                Verdict::Order { programs, scores },
            ) => {
                let order = known_only(&open.candidates, programs, scores);
                self.pause_in_order(worker, excess_tokens, &order, policy);
            }
            (Purpose::Restore, Verdict::Order { programs, scores }) => {
                let order = known_only(&open.candidates, programs, scores);
                self.restore_in_order(&order, policy);
            }
            // An answer of the wrong shape is no answer.
            (Purpose::Weigh { .. }, Verdict::Order { .. }) | (_, Verdict::Weights { .. }) => {
                self.answer_self(open.purpose, &open.candidates);
            }
        }
    }

    /// No answer came in time: the order in which the candidates were listed
    /// stands, and weights stay as they are.
    pub(crate) fn ask_expired(&mut self, ask: AskId) {
        if let Some(open) = self.state.asks.remove(&ask) {
            self.answer_self(open.purpose, &open.candidates);
        }
    }

    fn answer_self(&mut self, purpose: Purpose, candidates: &[ProgramId]) {
        let policy = PolicyRef("core".into());
        let order: Vec<_> = candidates.iter().map(|program| (*program, 0.0)).collect();
        match purpose {
            Purpose::Weigh { .. } => {}
            Purpose::Pause {
                worker,
                excess_tokens,
            } => {
                self.pause_in_order(worker, excess_tokens, &order, &policy);
            }
            Purpose::Restore => self.restore_in_order(&order, &policy),
        }
    }

    /// Only a program between steps is weighed; a step that came meanwhile
    /// makes it count in full.
    fn weigh(&mut self, program: ProgramId, ppm: u32) {
        let Some(p) = self.state.programs.get_mut(&program) else {
            return;
        };
        if p.is_between_steps() {
            p.weight_ppm = ppm.min(crate::program::FULL_WEIGHT_PPM);
            self.recharge(program);
        }
    }
}

/// The answer's order without programs that were not asked about or are named
/// twice.
fn known_only(
    candidates: &[ProgramId],
    programs: &[ProgramId],
    scores: &[f64],
) -> Vec<(ProgramId, f64)> {
    let mut open: std::collections::BTreeSet<_> = candidates.iter().copied().collect();
    let padded = scores.iter().copied().chain(std::iter::repeat(0.0));
    let ranked = programs.iter().copied().zip(padded);
    ranked.filter(|(program, _)| open.remove(program)).collect()
}
