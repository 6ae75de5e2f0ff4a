//! The workers that placement policies choose for programs that are about to be placed.

use super::assignment::Assignee;
use super::rows::only;
use super::{Answer, PolicyEvaluator};
use crate::columns::Workers;
use std::collections::BTreeMap;
use treadle_core::Core;
use treadle_core::programs::{PolicyAnswer, ProgramColumns};
use treadle_model::{PolicyRef, ProgramId, WorkerId, World};
use treadle_policy_runtime::{CallContext, PolicyFault};

/// Maximum number of placement policies that share one question.
const PLACERS_MAX: usize = 255;

impl PolicyEvaluator {
    /// Adds a worker for each program to an order, if a placement policy is bound for it. Without
    /// one the core decides by cache and room.
    pub(super) fn add_placements(
        &mut self,
        core: &Core,
        answer: &mut Answer,
        asked: &ProgramColumns,
        now_ms: u64,
    ) {
        let bound = self.bindings.world(World::Placement);
        if bound.iter().all(|(_, binding)| !binding.is_bound()) {
            return;
        }
        let PolicyAnswer::Order {
            programs, workers, ..
        } = &mut answer.answer
        else {
            return;
        };
        let by_row = asked.program.iter().copied().zip(0..);
        let row_of: BTreeMap<ProgramId, usize> = by_row.collect();
        let all = Workers::of(core);
        workers.resize(programs.len(), None);
        let mut placed_by = vec![0; programs.len()];
        for (assignee, of_assignee) in self.placers(core, programs) {
            let rows: Vec<usize> = of_assignee
                .iter()
                .map(|row| row_of[&programs[*row]])
                .collect();
            let part = only(asked, &rows);
            let Some((policy, preferred)) = self.assign(core, &assignee, &part, &all, now_ms)
            else {
                continue;
            };
            let placer = answer.attribution.placers.len() as u8;
            answer.attribution.placers.push(policy);
            for (row, worker) in of_assignee.into_iter().zip(preferred) {
                workers[row] = worker;
                placed_by[row] = placer;
            }
        }
        if answer.attribution.placers.len() > 1 {
            answer.attribution.placed_by = placed_by;
        }
        if answer.attribution.placers.is_empty() {
            workers.clear();
        }
    }

    /// The placement policies and their rows.
    pub(super) fn placers(
        &self,
        core: &Core,
        programs: &[ProgramId],
    ) -> Vec<(Assignee, Vec<usize>)> {
        let world = self.bindings.world(World::Placement);
        let mut placers: Vec<(Assignee, Vec<usize>)> = Vec::new();
        for (row, program) in programs.iter().enumerate() {
            let job = core.programs().live.get(program).map_or("", |p| &*p.job);
            let (scope, binding) = world.of_job(job);
            if !binding.is_bound() {
                continue;
            }
            let assignee = Assignee {
                world: World::Placement,
                scope,
                canary: binding.is_canary(*program),
            };
            let known = placers.iter().position(|(known, _)| *known == assignee);
            match known {
                Some(index) => placers[index].1.push(row),
                None if placers.len() < PLACERS_MAX => placers.push((assignee, vec![row])),
                None => {}
            }
        }
        placers
    }

    fn assign(
        &mut self,
        core: &Core,
        assignee: &Assignee,
        programs: &ProgramColumns,
        workers: &Workers,
        now_ms: u64,
    ) -> Option<(PolicyRef, Vec<Option<WorkerId>>)> {
        let facts = self.facts(core, programs, workers);
        let (policy, rows) = self.ask_slot(assignee, now_ms, programs.len(), |instance| {
            let instance = instance.as_placement_mut();
            instance
                .ok_or(PolicyFault::NotSupported)?
                .assign(&context(now_ms), &facts.assign(workers))
        })?;
        let worker = |row: u32| workers.at(row);
        Some((policy, rows.into_iter().map(worker).collect()))
    }
}

/// The context of a question asked now, within its world's deadline.
pub(super) fn context(now_ms: u64) -> CallContext {
    CallContext {
        now_ms,
        seed: now_ms,
        deadline_ms: None,
    }
}
