//! An answer as the core uses it: candidates in order, each with the version
//! that judged it and the worker that was wished for it.

use crate::question::{Verdict, Voices};
use std::collections::BTreeSet;
use treadle_model::{PolicyRef, ProgramId, WorkerId};

/// One candidate.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub(crate) program: ProgramId,
    pub(crate) score: f64,
    /// Where the placement policy wants it.
    pub(crate) wished: Option<WorkerId>,
    /// Who gave the score, as an index into the ranking's judges.
    judge: usize,
}

/// Candidates, best first.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    pub(crate) entries: Vec<Ranked>,
    /// Who placed them, if a placement policy was asked.
    pub(crate) placed_by: Option<PolicyRef>,
    /// The policy that the answer names, then the others that had a say.
    judges: Vec<PolicyRef>,
}

impl Ranking {
    /// The answer's order without programs that were not asked about or are
    /// named twice.
    pub(crate) fn of_order(
        candidates: &[ProgramId],
        verdict: &Verdict,
        policy: &PolicyRef,
        voices: &Voices,
    ) -> Self {
        let Verdict::Order {
            programs,
            scores,
            workers,
        } = verdict
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
                wished: workers.get(row).copied(),
                judge: voices.judge_of(row),
            });
        Self {
            entries: entries.collect(),
            placed_by: voices.placed_by.clone(),
            judges: judges(policy, voices),
        }
    }

    /// Programs with their weights, in the order in which they were asked about.
    pub(crate) fn of_weights(
        weights: &[(ProgramId, u32)],
        policy: &PolicyRef,
        voices: &Voices,
    ) -> Self {
        let rows = weights.iter().enumerate();
        let entries = rows.map(|(row, (program, ppm))| Ranked {
            program: *program,
            score: f64::from(*ppm) / 1e6,
            wished: None,
            judge: voices.judge_of(row),
        });
        Self {
            entries: entries.collect(),
            placed_by: None,
            judges: judges(policy, voices),
        }
    }

    /// The candidates as they were listed.
    pub(crate) fn unranked(candidates: &[ProgramId], policy: &PolicyRef) -> Self {
        let entries = candidates.iter().map(|program| Ranked {
            program: *program,
            score: 0.0,
            wished: None,
            judge: 0,
        });
        Self {
            entries: entries.collect(),
            placed_by: None,
            judges: vec![policy.clone()],
        }
    }

    /// Who judged this candidate.
    pub(crate) fn judge(&self, entry: &Ranked) -> &PolicyRef {
        self.judges.get(entry.judge).unwrap_or(&self.judges[0])
    }
}

fn judges(policy: &PolicyRef, voices: &Voices) -> Vec<PolicyRef> {
    let others = voices.judges.iter().cloned();
    std::iter::once(policy.clone()).chain(others).collect()
}
