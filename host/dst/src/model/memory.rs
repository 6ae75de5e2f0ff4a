//! Workers' memory: what placed programs take of it, and whether others fit. What programs and
//! their steps need is computed from events; what the core has learnt or guessed (shared prefixes,
//! weights, how full an engine may be) is its own.

use super::Model;
use super::facts::{At, StepFacts};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::Core;
use treadle_core::memory::PrefixSegment;
use treadle_core::programs::FULL_WEIGHT_PPM;
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, WorkerId};

/// The obstacle that pausing other programs may remove.
pub(super) const LACKS_ROOM: &str = "has no room or no slot";

/// The parts of a program's prompt that others may share.
pub(super) fn prefix_of(core: &Core, program: ProgramId) -> &[PrefixSegment] {
    let p = core.programs().live.get(&program);
    p.map_or(&[], |p| &p.prefix)
}

fn share_of(tokens: u64, ppm: u32) -> u64 {
    (u128::from(tokens) * u128::from(ppm) / 1_000_000) as u64
}

impl Model {
    /// Tokens that a program's placement needs beyond its prefix.
    pub(super) fn private_tokens(&self, core: &Core, program: ProgramId) -> u64 {
        let p = &self.programs[&program];
        let demands = p.steps.iter().map(|step| self.steps[step].demand_tokens());
        let demand = demands.max().unwrap_or(p.context_tokens);
        let prefix = prefix_of(core, program).iter();
        demand.saturating_sub(prefix.map(|segment| segment.tokens).sum())
    }

    fn weighted_tokens(&self, core: &Core, program: ProgramId) -> u64 {
        let p = core.programs().live.get(&program);
        let ppm = p.map_or(FULL_WEIGHT_PPM, |p| p.weight_ppm);
        share_of(self.private_tokens(core, program), ppm)
    }

    pub(super) fn programs_on(&self, worker: WorkerId) -> Vec<ProgramId> {
        let placed = self.programs.iter();
        let here = placed.filter(|(_, p)| p.place == Some(worker));
        here.map(|(id, _)| *id).collect()
    }

    /// Tokens that programs take on a worker: each its own, and what they share once.
    fn used_by(&self, core: &Core, worker: WorkerId, placed: &[ProgramId]) -> u64 {
        let known = core.programs().workers.get(&worker);
        let there = |segment: &PrefixSegment| {
            let shared = known.and_then(|w| w.ledger.shared().get(&segment.hash));
            (segment.hash, shared.map_or(segment.tokens, |s| s.tokens))
        };
        let segments = placed.iter().flat_map(|id| prefix_of(core, *id));
        let shared: BTreeMap<u64, u64> = segments.map(there).collect();
        let private = placed.iter().map(|id| self.weighted_tokens(core, *id));
        private.sum::<u64>() + shared.values().sum::<u64>()
    }

    /// Tokens reserved on a worker for programs whose caches are moved there, by program.
    fn kept(core: &Core, worker: WorkerId) -> impl Iterator<Item = (ProgramId, u64)> {
        let w = core.programs().workers.get(&worker);
        let kept = w.into_iter().flat_map(|w| w.ledger.kept());
        kept.map(|(program, room)| (*program, room.tokens))
    }

    pub(super) fn used_tokens(&self, core: &Core, worker: WorkerId) -> u64 {
        let kept = Self::kept(core, worker).map(|(_, tokens)| tokens);
        self.used_by(core, worker, &self.programs_on(worker)) + kept.sum::<u64>()
    }

    /// Tokens in use by programs that are not about to leave.
    pub(super) fn staying_tokens(&self, core: &Core, worker: WorkerId) -> u64 {
        let leaving = self.programs_on(worker).into_iter();
        let leaving = leaving.filter(|id| self.caches.is_leaving(*id));
        let leaving: u64 = leaving.map(|id| self.weighted_tokens(core, id)).sum();
        self.used_tokens(core, worker) - leaving
    }

    /// A share of what a worker keeps.
    pub(super) fn watermark(&self, core: &Core, worker: WorkerId, ppm: u32) -> u64 {
        let known = core.programs().workers.get(&worker);
        let beyond = known.map_or(0, |w| w.ledger.engine().beyond_tokens());
        let tokens = self.workers.get(&worker).and_then(|w| w.capacity.tokens);
        tokens.map_or(u64::MAX, |tokens| share_of(tokens + beyond, ppm))
    }

    /// Tokens up to which a worker is filled: what the core has learnt, or the low watermark.
    fn fill_of(&self, core: &Core, worker: WorkerId) -> u64 {
        let known = core.programs().workers.get(&worker);
        let learnt = known
            .filter(|w| self.config.kv.retention && w.ledger.engine().headroom_ppm().is_some());
        let fill = match learnt {
            Some(w) => core.fill_tokens(w),
            None => self.watermark(core, worker, self.config.low_watermark_ppm),
        };
        fill.min(self.watermark(core, worker, self.config.high_watermark_ppm))
    }

    /// Tokens that a program lacks on a worker with these programs; 1 if it only lacks a slot.
    pub(super) fn lacks(
        &self,
        core: &Core,
        program: ProgramId,
        worker: WorkerId,
        placed: &[ProgramId],
    ) -> u64 {
        // Its own room there it had for a move that ends with its placement.
        let kept: Vec<u64> = Self::kept(core, worker)
            .filter(|(id, _)| *id != program)
            .map(|(_, tokens)| tokens)
            .collect();
        let seated = placed.len() + kept.len();
        let slots = self.workers.get(&worker).and_then(|w| w.capacity.slots);
        let full = slots.is_some_and(|slots| seated >= slots as usize);
        let segments = placed.iter().flat_map(|id| prefix_of(core, *id));
        let there: BTreeSet<u64> = segments.map(|segment| segment.hash).collect();
        let fresh = prefix_of(core, program).iter();
        let fresh = fresh.filter(|segment| !there.contains(&segment.hash));
        let need = self.private_tokens(core, program) + fresh.map(|s| s.tokens).sum::<u64>();
        let used = self.used_by(core, worker, placed) + kept.iter().sum::<u64>();
        let short = (used + need).saturating_sub(self.fill_of(core, worker));
        let short = if seated == 0 { 0 } else { short };
        short.max(u64::from(full))
    }

    /// Why a worker can't take a waiting program at present; `None` if it can.
    pub(super) fn obstacle(
        &self,
        core: &Core,
        program: ProgramId,
        worker: WorkerId,
    ) -> Option<&'static str> {
        let Some(w) = self.workers.get(&worker) else {
            return Some("is gone");
        };
        let state = core.programs();
        if state.workers.get(&worker).is_none_or(|w| core.is_busy(w)) {
            return Some("is busy");
        }
        let least = self.least_waiting(program);
        if !w.takes_programs() {
            return Some("is lost, or out of service");
        }
        let avoided = state.live.get(&program).and_then(|p| p.avoid);
        if avoided == Some(worker) && self.another_takes(worker, least) {
            return Some("has just failed it");
        }
        if least > w.context_tokens_max() {
            return Some("takes no context so long");
        }
        let lacks = self.lacks(core, program, worker, &self.programs_on(worker));
        (lacks > 0).then_some(LACKS_ROOM)
    }

    /// The longest prompt of the steps that come along with a program, at least: not of those that
    /// run elsewhere, or are refused.
    fn least_waiting(&self, program: ProgramId) -> u64 {
        let p = self.programs.get(&program);
        let steps = p.into_iter().flat_map(|p| &p.steps);
        let steps = steps.filter(|step| !self.refused.contains(step));
        let waiting = steps
            .map(|step| &self.steps[step])
            .filter(|s| !matches!(s.at, At::Worker(..)));
        waiting.map(|s| self.least_of(s)).max().unwrap_or(0)
    }

    /// Minimum number of tokens of a step's prompt. Nothing is refused because of an estimate.
    pub(super) fn least_of(&self, step: &StepFacts) -> u64 {
        if step.exact {
            return step.prompt_tokens;
        }
        (step.prompt_tokens / 2).min(self.longest_context())
    }

    fn another_takes(&self, worker: WorkerId, least_tokens: u64) -> bool {
        let mut others = self
            .workers
            .iter()
            .filter(|(id, w)| **id != worker && w.takes_programs());
        others.any(|(_, w)| least_tokens <= w.context_tokens_max())
    }

    pub(super) fn has_room_somewhere(&self, core: &Core, program: ProgramId) -> Option<WorkerId> {
        let mut workers = self.workers.keys().copied();
        workers.find(|worker| self.obstacle(core, program, *worker).is_none())
    }

    /// Checks that a program is placed, or its cache moved, to a worker that may be given programs.
    pub(super) fn is_admitted(&mut self, program: ProgramId, worker: WorkerId) -> Checked {
        let w = self.workers.get(&worker).filter(|w| w.takes_programs());
        let least = self.least_waiting(program);
        if w.is_none_or(|w| least > w.context_tokens_max()) {
            return broken(
                "admission",
                format!("{program} comes to {worker} with {least} tokens: {w:?}"),
            );
        }
        self.admitted.push((program, worker));
        Ok(())
    }

    /// After an event each worker that was given a program is filled no further than it may be, or
    /// holds at most one other: what is there may have grown in the same event. With more, at most
    /// two are at work there, and they fit.
    pub(super) fn check_admissions(&self, core: &Core) -> Checked {
        for (program, worker) in self.admitted.iter().copied() {
            let Some(w) = self.workers.get(&worker) else {
                continue;
            };
            let placed = self.programs_on(worker);
            let kept = Self::kept(core, worker).count();
            let seated = placed.len() + kept;
            let slots_full = w.capacity.slots.is_some_and(|most| seated > most as usize);
            let (used, fill) = (self.used_tokens(core, worker), self.fill_of(core, worker));
            let at_work = placed.iter();
            let at_work = at_work.filter(|id| !self.programs[id].steps.is_empty());
            let at_work: Vec<u64> = at_work.map(|id| self.private_tokens(core, *id)).collect();
            let most = w.capacity.tokens.unwrap_or(u64::MAX);
            let work_fits = kept == 0 && at_work.len() <= 2 && at_work.iter().sum::<u64>() <= most;
            if slots_full || (used > fill && seated > 2 && !work_fits) {
                return broken(
                    "admission",
                    format!(
                        "{program} was placed on {worker}, where {used} tokens are in use by {seated} programs: {fill} are filled of {:?}",
                        w.capacity
                    ),
                );
            }
        }
        Ok(())
    }
}
