//! Where programs are placed. A program gets a placement by a decision, or where its cache was
//! moved; it loses it by a decision, or at any time when none of its steps runs there.

use super::Model;
use super::facts::At;
use std::collections::BTreeSet;
use treadle_core::{Core, Mode};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Model {
    /// Takes over the placements that have ended, except those of programs that the current event
    /// decides about.
    pub(super) fn end_placements(&mut self, core: &Core, decided: &BTreeSet<ProgramId>) -> Checked {
        let live = &core.programs().live;
        let ended = self.programs.iter().filter(|(id, p)| {
            let known = live.get(id);
            p.place.is_some() && known.is_some_and(|known| known.placement.is_none())
        });
        let ended: Vec<ProgramId> = ended.map(|(id, _)| *id).collect();
        for program in ended.into_iter().filter(|id| !decided.contains(id)) {
            self.leave(program)?;
        }
        Ok(())
    }

    /// A program loses its placement.
    pub(super) fn leave(&mut self, program: ProgramId) -> Checked {
        let runs = self.runs_now(program).filter(|_| self.is_aware());
        let Some(p) = self.programs.get_mut(&program) else {
            return Ok(());
        };
        if let (Some(worker), Some(step)) = (p.place.take(), runs) {
            return broken(
                "placement",
                format!("{program} loses its placement on {worker}, while its {step} runs"),
            );
        }
        Ok(())
    }

    pub(super) fn place(&mut self, core: &Core, program: ProgramId, worker: WorkerId) {
        let now = self.now;
        if let Some(p) = self.programs.get_mut(&program) {
            p.place = Some(worker);
            p.placed_at = now;
            p.placed_before = true;
            p.idle_since_us = self.settled_us;
        }
        let live = core.programs().live.get(&program);
        let prefix = live.into_iter().flat_map(|p| &p.prefix);
        self.newly_shared.extend(prefix.map(|segment| segment.hash));
    }

    /// The mode in which programs have no placements.
    pub(super) fn is_plain_router(&self) -> bool {
        self.config.mode == Mode::LeastLoad
    }

    pub(super) fn has_live_placement(&self, program: ProgramId) -> bool {
        let place = self.programs.get(&program).and_then(|p| p.place);
        place.is_some_and(|worker| self.workers.get(&worker).is_some_and(|w| w.healthy))
    }

    pub(super) fn runs_anything(&self, program: ProgramId) -> bool {
        let p = self.programs.get(&program);
        let mut steps = p.into_iter().flat_map(|p| &p.steps);
        steps.any(|step| matches!(self.steps[step].at, At::Worker(..)))
    }

    /// A step of a program that was sent to a worker in its present life, by a daemon that knew of
    /// all others.
    fn runs_now(&self, program: ProgramId) -> Option<StepId> {
        let p = self.programs.get(&program)?;
        let runs = |step: &&StepId| {
            let s = &self.steps[*step];
            let At::Worker(worker, life) = s.at else {
                return false;
            };
            let w = self.workers.get(&worker);
            !s.adopted && w.is_some_and(|w| w.healthy && w.life == life)
        };
        p.steps.iter().find(runs).copied()
    }
}
