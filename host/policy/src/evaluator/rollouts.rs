//! Further questions of rollouts: where a step goes, which programs should be on another worker,
//! and which running steps are preempted.
//!
//! Shadows don't get these questions: they are compared by scores.

use super::assignment::assignee;
use super::placements::context;
use super::rows::only;
use super::{Answer, PolicyEvaluator, native_policy, native_policy_for};
use crate::columns::{Steps, Workers, cached_tokens, first_of_highest};
use treadle_core::Core;
use treadle_core::programs::{Attribution, PolicyAnswer, ProgramColumns, Purpose};
use treadle_model::{PolicyRef, ProgramId, WorkerId, World};
use treadle_policy_runtime::PolicyFault;

/// A program that should be on another worker, ranked by its remaining length.
struct Moved {
    program: ProgramId,
    rank: f64,
    to: WorkerId,
    placer: u8,
}

impl PolicyEvaluator {
    /// Adds the predicted remaining tokens of programs: new ones wait until the memory suffices for
    /// all.
    pub(super) fn add_forecasts(&self, answer: &mut Answer) {
        let PolicyAnswer::Order {
            programs,
            remaining_tokens,
            ..
        } = &mut answer.answer
        else {
            return;
        };
        let known = |program: &ProgramId| self.forecasts.get(program);
        if programs.iter().any(|program| known(program).is_some()) {
            // The conversion saturates.
            let tokens = |program| known(program).map_or(-1, |f| f.remaining_tokens as i64);
            *remaining_tokens = programs.iter().map(tokens).collect();
        }
    }

    /// Adds the placement policy's worker to a step's priority. Without a policy, or without a
    /// worker in its answer, the step stays with its program.
    pub(super) fn add_route(
        &mut self,
        core: &Core,
        answer: &mut Answer,
        programs: &ProgramColumns,
        now_ms: u64,
    ) {
        let PolicyAnswer::Order { workers, .. } = &mut answer.answer else {
            return;
        };
        let Some((placer, _)) = self.placers(core, &programs.program).into_iter().next() else {
            return;
        };
        let all = Workers::of(core);
        let Some(program) = programs.program.first().filter(|_| !all.id.is_empty()) else {
            return;
        };
        let (facts, cached) = (
            self.facts(core, programs, &all),
            cached_tokens(core, *program, &all),
        );
        let asked = self.ask_slot(&placer, now_ms, all.id.len(), |instance| {
            let instance = instance.as_placement_mut();
            instance
                .ok_or(PolicyFault::NotSupported)?
                .route(&context(now_ms), &facts.route(&cached, &all))
        });
        if let Some((policy, scores)) = asked {
            let preferred = first_of_highest(&scores).map(|row| all.id[row]);
            *workers = vec![preferred];
            answer.attribution.placers.push(policy);
        }
    }

    /// The placed programs that should be on another worker, each by the policy of its job; one
    /// without a policy stays.
    pub(super) fn migrate(
        &mut self,
        core: &Core,
        programs: &ProgramColumns,
        now_ms: u64,
    ) -> Answer {
        let all = Workers::of(core);
        let (mut policies, mut moved): (Vec<PolicyRef>, Vec<Moved>) = (Vec::new(), Vec::new());
        for (placer, rows) in self.placers(core, &programs.program) {
            let facts = self.facts(core, &only(programs, &rows), &all);
            // A program whose worker is lost waits for placement; nothing is moved.
            let here = (0..rows.len()).filter(|row| all.at(facts.worker[*row]).is_some());
            let rows: Vec<usize> = here.map(|row| rows[row]).collect();
            let facts = self.facts(core, &only(programs, &rows), &all);
            if rows.is_empty() {
                continue;
            }
            let asked = self.ask_slot(&placer, now_ms, rows.len(), |instance| {
                let instance = instance.as_placement_mut();
                instance
                    .ok_or(PolicyFault::NotSupported)?
                    .migrate(&context(now_ms), &facts.migrate(&all))
            });
            let Some((policy, wanted)) = asked else {
                continue;
            };
            let placer = policies.len() as u8;
            policies.push(policy);
            let leaving = facts.moves(&wanted, &all).into_iter();
            moved.extend(leaving.map(|(row, to)| Moved {
                program: facts.id[row],
                rank: facts.remaining_tokens[row],
                to,
                placer,
            }));
        }
        if policies.is_empty() {
            policies.push(native_policy(World::Placement));
        }
        moves(policies, &moved)
    }

    /// Running steps to preempt for waiting ones, as decided by the policy for the most urgent
    /// waiting step's program.
    pub(super) fn preempt(
        &mut self,
        core: &Core,
        worker: WorkerId,
        programs: &ProgramColumns,
        now_ms: u64,
    ) -> Answer {
        let steps = Steps::of(core, worker, &programs.program);
        let columns = steps.columns();
        let native = || native_policy_for(World::Priority, Purpose::Preempt { worker });
        let Some(urgent) = steps.most_urgent else {
            return order(native(), Vec::new());
        };
        let assignee = assignee(&self.bindings, core, &[World::Priority], urgent);
        let asked = self.ask_slot(&assignee, now_ms, columns.len(), |instance| {
            let instance = instance.as_priority_mut();
            instance
                .ok_or(PolicyFault::NotSupported)?
                .preempt(&context(now_ms), &columns)
        });
        match asked {
            Some((policy, marks)) => order(policy, steps.giving_way(&marks)),
            None => order(native(), Vec::new()),
        }
    }
}

fn order(policy: PolicyRef, programs: Vec<ProgramId>) -> Answer {
    Answer {
        policy,
        answer: PolicyAnswer::Order {
            scores: vec![0.0; programs.len()],
            programs,
            workers: Vec::new(),
            remaining_tokens: Vec::new(),
        },
        attribution: Attribution::default(),
    }
}

/// The answer names the first policy; its attribution lists all as placers.
fn moves(policies: Vec<PolicyRef>, moved: &[Moved]) -> Answer {
    let placed_by = match policies.len() {
        1 => Vec::new(),
        _ => moved.iter().map(|m| m.placer).collect(),
    };
    Answer {
        policy: policies[0].clone(),
        answer: PolicyAnswer::Order {
            programs: moved.iter().map(|m| m.program).collect(),
            scores: moved.iter().map(|m| m.rank).collect(),
            workers: moved.iter().map(|m| Some(m.to)).collect(),
            remaining_tokens: Vec::new(),
        },
        attribution: Attribution {
            placers: policies,
            placed_by,
            ..Attribution::default()
        },
    }
}
