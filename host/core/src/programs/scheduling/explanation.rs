//! Inputs of a decision's explanation, collected just before it is carried out.

use crate::programs::Programs;
use crate::programs::explain::{Alternative, Because, Decision, DecisionKind};
use crate::programs::ranking::Ranked;
use treadle_model::{PolicyRef, ProgramId, Span, WorkerId};

/// Maximum number of alternatives in an explanation.
const ALTERNATIVES_MAX: usize = 3;

/// Why something is about to be done.
#[derive(Clone, Copy)]
pub(crate) struct Explanation<'a> {
    kind: DecisionKind,
    because: Because,
    policy: Option<&'a PolicyRef>,
    pub(crate) placed_by: Option<&'a PolicyRef>,
    considered: &'a [Ranked],
}

impl<'a> Explanation<'a> {
    pub(crate) fn new(kind: DecisionKind, because: Because) -> Self {
        Self {
            kind,
            because,
            policy: None,
            placed_by: None,
            considered: &[],
        }
    }

    /// Sets the policy that decided.
    pub(crate) fn by(self, policy: &'a PolicyRef) -> Self {
        Self {
            policy: Some(policy),
            ..self
        }
    }

    /// Sets the candidates of the decision, including the program itself.
    pub(super) fn among(self, considered: &'a [Ranked]) -> Self {
        Self { considered, ..self }
    }
}

impl Programs {
    /// Records a decision that is about to be carried out.
    pub(crate) fn explain(
        &mut self,
        program: ProgramId,
        worker: WorkerId,
        explanation: &Explanation<'_>,
    ) {
        if !self.config.explain {
            return;
        }
        let now = self.state.now;
        let (Some(p), Some(w)) = (
            self.state.live.get(&program),
            self.state.workers.get(&worker),
        ) else {
            return;
        };
        let waited = self.waited(p).unwrap_or(now.since(p.phase_since));
        let is_own = |entry: &&Ranked| entry.program == program;
        let others = explanation.considered.iter().filter(|entry| !is_own(entry));
        let decision = Decision {
            at: now,
            kind: explanation.kind,
            program,
            key: p.key.clone(),
            worker,
            policy: explanation
                .policy
                .cloned()
                .unwrap_or_else(|| PolicyRef("core".into())),
            placed_by: explanation.placed_by.cloned(),
            because: explanation.because,
            need_tokens: w.need_tokens(p.private_tokens(), &p.prefix),
            used_tokens: w.used_tokens(),
            capacity_tokens: w.capacity.tokens,
            waited: if explanation.kind == DecisionKind::Place && p.queued.is_none() {
                Span(0)
            } else {
                waited
            },
            score: explanation.considered.iter().find(is_own).map(|e| e.score),
            alternatives: others
                .take(ALTERNATIVES_MAX)
                .map(|entry| Alternative {
                    program: entry.program,
                    key: self.state.live.get(&entry.program).map(|p| p.key.clone()),
                    score: entry.score,
                })
                .collect(),
        };
        self.decisions.push_back(decision);
    }
}
