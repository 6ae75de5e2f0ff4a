//! Placements and charges: the only code that changes a worker's ledger.

use crate::memory::PrefixSegment;
use crate::programs::Programs;
use crate::programs::program::KvPlacement;
use treadle_model::{ProgramId, Status, StepId, WorkerId};

impl Programs {
    /// Places an unplaced program.
    pub(crate) fn place(&mut self, program: ProgramId, worker: WorkerId) {
        self.place_at(program, worker, None);
    }

    /// Places an unplaced program on the slot that was reserved for it.
    pub(super) fn place_at(&mut self, program: ProgramId, worker: WorkerId, kept: Option<u32>) {
        let now = self.state.now;
        let (Some(p), Some(w)) = (
            self.state.live.get_mut(&program),
            self.state.workers.get_mut(&worker),
        ) else {
            return;
        };
        debug_assert!(p.placement.is_none(), "{program} is placed already");
        let charged_tokens = p.weighted_tokens();
        // Its cache may still be in its last slot, if nobody has had that slot since.
        let last = p.last_slot.filter(|_| p.last_worker == Some(worker));
        let slot = kept.or(last);
        let slot = w
            .ledger
            .charge(program, charged_tokens, &p.prefix, slot, &w.capacity);
        w.programs.insert(program);
        p.placement = Some(KvPlacement {
            worker,
            slot,
            charged_tokens,
            since: now,
        });
        (p.last_worker, p.last_slot) = (Some(worker), slot);
        p.status = Status::Active;
        for step in &p.waiting {
            // Steps that waited for their turn elsewhere wait for it here.
            let waits = self.state.steps.get(step).filter(|s| s.routed);
            w.line.extend(waits.map(|s| s.queued_step(*step)));
            self.due.serve.insert(worker);
        }
        self.state.waiting.set_newcomer(program, false);
        self.state.waiting.end_reservation(program);
        self.refresh_idle(program);
        self.account(program);
    }

    /// Replaces the shared part of a program's context.
    pub(crate) fn change_prefix(&mut self, program: ProgramId, prefix: Vec<PrefixSegment>) {
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        let before = std::mem::replace(&mut p.prefix, prefix);
        let worker = p.placement.map(|place| place.worker);
        if let Some(w) = worker.and_then(|worker| self.state.workers.get_mut(&worker)) {
            w.ledger.change_prefix(&before, &p.prefix);
        }
        if p.queued.is_some() {
            self.refile(program);
        }
        self.recharge(program);
        if let Some(worker) = worker {
            self.account_worker(worker);
        }
    }

    /// Updates the worker's list of programs between steps.
    pub(crate) fn refresh_idle(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let Some(w) = p
            .placement
            .and_then(|place| self.state.workers.get_mut(&place.worker))
        else {
            return;
        };
        if p.is_between_steps() {
            w.idle.insert(program);
            if w.busy_programs() <= 1 {
                self.state.waiting.want_restore();
            }
        } else {
            w.idle.remove(&program);
        }
    }

    /// Ends a program's placement, and a migration of its cache from there.
    pub(crate) fn unplace(&mut self, program: ProgramId) -> Option<KvPlacement> {
        self.give_up_move(program);
        self.give_up_transfer(program);
        if let Some(place) = self.state.live.get(&program)?.placement {
            self.linger(program, place.worker);
        }
        let p = self.state.live.get_mut(&program)?;
        let place = p.placement.take()?;
        self.due.serve.insert(place.worker);
        p.status = Status::Paused;
        let w = self.state.workers.get_mut(&place.worker)?;
        w.ledger
            .release(place.charged_tokens, &p.prefix, place.slot);
        w.programs.remove(&program);
        w.idle.remove(&program);
        for step in &p.waiting {
            w.ledger.engine_mut().end_prompt(*step);
            if let Some(s) = self.state.steps.get_mut(step) {
                w.line.remove(&s.queued_step(*step));
                s.routed = false;
            }
        }
        self.state.waiting.want_restore();
        self.account(program);
        Some(place)
    }

    /// Updates a placed program's charge to its demand and weight.
    pub(crate) fn recharge(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        let weighted = p.weighted_tokens();
        let Some(place) = p.placement.as_mut() else {
            return;
        };
        if place.charged_tokens == weighted {
            return;
        }
        let Some(w) = self.state.workers.get_mut(&place.worker) else {
            return;
        };
        if weighted < place.charged_tokens {
            self.state.waiting.want_restore();
        }
        w.ledger.recharge(place.charged_tokens, weighted);
        place.charged_tokens = weighted;
        self.account_charge(program);
    }

    /// Recomputes what a program's placement must hold, and charges it.
    pub(crate) fn refresh_demand(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        let steps = &self.state.steps;
        let of = |id: &StepId| {
            steps
                .get(id)
                .map(crate::programs::step::Step::demand_tokens)
        };
        let demand = p.running.iter().chain(&p.waiting).filter_map(of).max();
        p.demand_tokens = demand.unwrap_or(p.context_tokens);
        if p.queued.is_some() {
            self.refile(program);
        }
        self.recharge(program);
    }
}
