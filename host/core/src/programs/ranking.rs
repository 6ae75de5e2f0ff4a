//! Answers in the form that the core uses: candidates in order, each with the version that
//! evaluated it and the worker chosen for it.

use crate::programs::question::{Attribution, CacheAction, PolicyAnswer};
use std::collections::BTreeSet;
use treadle_model::{PolicyRef, ProgramId, WorkerId};

/// One candidate.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub(crate) program: ProgramId,
    pub(crate) score: f64,
    /// The worker that a placement policy chose.
    pub(crate) wished: Option<WorkerId>,
    /// Predicted number of tokens still to generate.
    pub(crate) remaining_tokens: Option<u64>,
    /// Its row in the answer.
    row: usize,
    /// The evaluator that gave the score, as an index into the ranking's evaluators.
    evaluator: usize,
}

/// Candidates, best first.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    pub(crate) entries: Vec<Ranked>,
    /// The policy that the answer names, then the others that contributed.
    evaluators: Vec<PolicyRef>,
    attribution: Attribution,
}

impl Ranking {
    /// The answer's order without programs that were not asked about or are named twice.
    pub(crate) fn of_order(
        candidates: &[ProgramId],
        answer: &PolicyAnswer,
        policy: &PolicyRef,
        attribution: &Attribution,
    ) -> Self {
        let PolicyAnswer::Order {
            programs,
            scores,
            workers,
            remaining_tokens,
        } = answer
        else {
            return Self::unranked(candidates, policy);
        };
        let mut open: BTreeSet<_> = candidates.iter().copied().collect();
        let rows = programs.iter().enumerate();
        let entries = rows
            .filter(|(_, program)| open.remove(program))
            .map(|(row, program)| Ranked {
                program: *program,
                score: scores.get(row).copied().unwrap_or(0.0),
                wished: workers.get(row).copied().flatten(),
                remaining_tokens: remaining_tokens
                    .get(row)
                    .and_then(|tokens| u64::try_from(*tokens).ok()),
                row,
                evaluator: attribution.evaluator_of(row),
            });
        Self {
            entries: entries.collect(),
            evaluators: evaluators(policy, attribution),
            attribution: attribution.clone(),
        }
    }

    /// Programs with their weights, in the order of the question.
    pub(crate) fn of_weights(
        weights: &[(ProgramId, u32)],
        policy: &PolicyRef,
        attribution: &Attribution,
    ) -> Self {
        let rows = weights.iter().enumerate();
        let entries = rows.map(|(row, (program, ppm))| Ranked {
            program: *program,
            score: f64::from(*ppm) / 1e6,
            wished: None,
            remaining_tokens: None,
            row,
            evaluator: attribution.evaluator_of(row),
        });
        Self {
            entries: entries.collect(),
            evaluators: evaluators(policy, attribution),
            attribution: Attribution::default(),
        }
    }

    /// Programs with their cache actions, in the order of the answer.
    pub(crate) fn of_actions(
        actions: &[(ProgramId, CacheAction)],
        policy: &PolicyRef,
        attribution: &Attribution,
    ) -> Self {
        let rows = actions.iter().enumerate();
        let entries = rows.map(|(row, (program, _))| Ranked {
            program: *program,
            score: 0.0,
            wished: None,
            remaining_tokens: None,
            row,
            evaluator: attribution.evaluator_of(row),
        });
        Self {
            entries: entries.collect(),
            evaluators: evaluators(policy, attribution),
            attribution: Attribution::default(),
        }
    }

    /// The candidates in their own order.
    pub(crate) fn unranked(candidates: &[ProgramId], policy: &PolicyRef) -> Self {
        let entries = candidates.iter().map(|program| Ranked {
            program: *program,
            score: 0.0,
            wished: None,
            remaining_tokens: None,
            row: 0,
            evaluator: 0,
        });
        Self {
            entries: entries.collect(),
            evaluators: vec![policy.clone()],
            attribution: Attribution::default(),
        }
    }

    /// Adds candidates that the answer left out, in the core's own order and as the core's own
    /// choice.
    pub(crate) fn add_left_out(&mut self, left_out: &[ProgramId]) {
        let named: BTreeSet<_> = self.entries.iter().map(|entry| entry.program).collect();
        let evaluator = self.evaluators.len();
        self.evaluators.push(PolicyRef("core".into()));
        let added = left_out.iter().filter(|program| !named.contains(program));
        self.entries.extend(added.map(|program| Ranked {
            program: *program,
            score: 0.0,
            wished: None,
            remaining_tokens: None,
            row: usize::MAX,
            evaluator,
        }));
    }

    /// The evaluator of this candidate.
    pub(crate) fn evaluator(&self, entry: &Ranked) -> &PolicyRef {
        self.evaluators
            .get(entry.evaluator)
            .unwrap_or(&self.evaluators[0])
    }

    /// The placement policy that chose this candidate's worker.
    pub(crate) fn placer(&self, entry: &Ranked) -> Option<&PolicyRef> {
        entry
            .wished
            .and_then(|_| self.attribution.placer_of(entry.row))
    }
}

fn evaluators(policy: &PolicyRef, attribution: &Attribution) -> Vec<PolicyRef> {
    let others = attribution.policies.iter().cloned();
    std::iter::once(policy.clone()).chain(others).collect()
}
