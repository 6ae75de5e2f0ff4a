//! Workers that operators have taken out of service: nothing is placed there, and draining ones
//! lose their programs as soon as none of the programs' steps run.

use super::Model;
use super::caches::Way;
use treadle_core::Core;
use treadle_core::programs::WorkerState;
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Model {
    pub(super) fn state_set(&mut self, worker: WorkerId, state: WorkerState) {
        let Some(w) = self.workers.get_mut(&worker) else {
            return;
        };
        w.state = state;
        if state == WorkerState::Active {
            return;
        }
        let under_way = self.caches.under_way.iter();
        let comes = |way: Way| matches!(way, Way::Move(_, to) if to == worker);
        let coming: Vec<ProgramId> = under_way
            .filter(|(_, u)| comes(u.way))
            .map(|(program, _)| *program)
            .collect();
        for program in coming {
            self.ends(program, |_| true);
            self.caches.stopping.insert(program);
        }
    }

    /// Whether the program's worker is draining and none of its steps run.
    pub(super) fn is_to_leave(&self, program: ProgramId) -> bool {
        let place = self.programs.get(&program).and_then(|p| p.place);
        place.is_some_and(|worker| self.is_draining(worker)) && !self.runs_anything(program)
    }

    pub(super) fn is_draining(&self, worker: WorkerId) -> bool {
        let w = self.workers.get(&worker);
        w.is_some_and(|w| w.state == WorkerState::Draining)
    }

    /// Checks that no program is placed on a worker that is out of service.
    pub(super) fn check_in_service(&self, program: ProgramId, worker: WorkerId) -> Checked {
        let w = self.workers.get(&worker);
        match w.filter(|w| w.state != WorkerState::Active) {
            Some(w) => broken(
                "cordon",
                format!("{program} comes to {worker}, which is {}", w.state.as_str()),
            ),
            None => Ok(()),
        }
    }

    /// No step begins on a draining worker: a program whose steps overlap would never leave. Where
    /// programs have no placements, none begins on a cordoned one.
    pub(super) fn check_begins(&self, step: StepId, worker: WorkerId) -> Checked {
        let program = self.steps[&step].program;
        if self.is_plain_router() {
            return self.check_in_service(program, worker);
        }
        if self.is_draining(worker) {
            return broken(
                "drain",
                format!("{step} of {program} begins on {worker}, which is draining"),
            );
        }
        Ok(())
    }

    /// After each event no program of which nothing runs stays on a draining worker, but one whose
    /// cache is on its way out, or is about to be.
    pub(super) fn check_draining(&self, core: &Core) -> Checked {
        let state = core.programs();
        if !state.adopted.is_empty() {
            // A waiting step may be the next to be adopted.
            return Ok(());
        }
        for (program, p) in &self.programs {
            let out = |way: Way| matches!(way, Way::Out(_) | Way::Move(..));
            let under_way = self.caches.under_way.get(program);
            let goes = self.caches.wanted.contains(program)
                || under_way.is_some_and(|u| out(u.way))
                || p.steps.is_empty() && state.memory.migrations().wanted().contains_key(program);
            if !goes && self.is_to_leave(*program) && self.has_live_placement(*program) {
                return broken(
                    "drain",
                    format!("{program} stays at {:?}, which is draining", p.place),
                );
            }
        }
        Ok(())
    }
}
