//! The rules: ledgers and placements agree, memory use and waits stay within their limits, and the
//! queue is served in order.

use super::super::outcome::{Checked, broken};
use super::Model;
use super::facts::{At, WorkerFacts};
use std::collections::BTreeSet;
use treadle_core::programs::{Program, StepState};
use treadle_core::{Core, DaemonEvent, Event, Mode, ProgramEvent};
use treadle_model::{ProgramId, StepId, Timestamp, WorkerId};

/// The obstacle that pausing other programs may remove.
pub(super) const LACKS_ROOM: &str = "has no room or no slot";

impl Model {
    /// Tokens that a program's placement needs beyond its prefix.
    pub(super) fn private_tokens(&self, program: ProgramId) -> u64 {
        let p = &self.programs[&program];
        let demands = p.steps.iter().map(|step| self.steps[step].demand_tokens());
        let demand = demands.max().unwrap_or(p.context_tokens);
        demand.saturating_sub(p.prefix_tokens())
    }

    pub(super) fn programs_on(&self, worker: WorkerId) -> Vec<ProgramId> {
        let here = self
            .programs
            .iter()
            .filter(|(_, p)| p.place == Some(worker));
        here.map(|(id, _)| *id).collect()
    }

    /// Tokens in use: what placed programs need by themselves, and each
    /// shared prefix once.
    fn used_by(&self, w: &WorkerFacts, placed: &[ProgramId]) -> u64 {
        let private = placed
            .iter()
            .map(|id| self.programs[id].weighted(self.private_tokens(*id)));
        private.sum::<u64>() + self.shared_tokens(w, placed)
    }

    fn used_tokens(&self, worker: WorkerId) -> u64 {
        let Some(w) = self.workers.get(&worker) else {
            return 0;
        };
        self.used_by(w, &self.programs_on(worker)) + w.kept.values().sum::<u64>()
    }

    /// The same by programs that are not about to leave.
    fn staying_tokens(&self, worker: WorkerId) -> u64 {
        let leaving = self.programs_on(worker).into_iter();
        let leaving = leaving.filter(|id| self.caches.is_leaving(*id));
        let weight = |id: ProgramId| self.programs[&id].weighted(self.private_tokens(id));
        self.used_tokens(worker) - leaving.map(weight).sum::<u64>()
    }

    /// Additional tokens of a program beside some placed ones.
    fn need_beside(&self, program: ProgramId, placed: &[ProgramId]) -> u64 {
        let prefixes = placed.iter().flat_map(|id| &self.programs[id].prefix);
        let there: BTreeSet<u64> = prefixes.map(|segment| segment.hash).collect();
        let prefix = &self.programs[&program].prefix;
        let fresh = prefix.iter().filter(|s| !there.contains(&s.hash));
        self.private_tokens(program) + fresh.map(|s| s.tokens).sum::<u64>()
    }

    /// Tokens that a program lacks on a worker with these programs; 1 if it only lacks a slot.
    pub(super) fn lacks(&self, program: ProgramId, w: &WorkerFacts, placed: &[ProgramId]) -> u64 {
        let low = self.fill_of(w);
        // Its own room there it had for a move that ends with its placement.
        let kept = w.kept.iter().filter(|(id, _)| **id != program);
        let seated = (placed.len() + kept.clone().count()) as u64;
        let used = self.used_by(w, placed) + kept.map(|(_, tokens)| tokens).sum::<u64>();
        let full = w
            .capacity
            .slots
            .is_some_and(|slots| seated >= u64::from(slots));
        let need = self.need_beside(program, placed);
        let short = (used + need).saturating_sub(low);
        let fits = seated == 0 || self.fits_beside_busy(need, w, placed);
        let short = if fits { 0 } else { short };
        short.max(u64::from(full))
    }

    /// Where one program at most is at work, the next one may take what others keep for the time
    /// after their tools.
    fn fits_beside_busy(&self, need: u64, w: &WorkerFacts, placed: &[ProgramId]) -> bool {
        let kv = &self.config.kv;
        if kv.host_tokens_max > 0 || kv.migration_tokens_per_s > 0 || w.capacity.slots.is_some() {
            return false;
        }
        let busy = placed
            .iter()
            .filter(|id| !self.programs[id].steps.is_empty());
        let used = busy.map(|id| self.private_tokens(*id) + self.programs[id].prefix_tokens());
        let busy: Vec<u64> = used.collect();
        let used = busy.iter().sum::<u64>();
        busy.len() <= 1 && w.kept.is_empty() && used + need <= w.capacity.tokens.unwrap_or(u64::MAX)
    }

    /// Why a worker can't take a waiting program at present; `None` if it can.
    pub(super) fn obstacle(&self, program: ProgramId, worker: WorkerId) -> Option<&'static str> {
        if self.is_busy(worker) {
            return Some("is busy");
        }
        self.lasting_obstacle(program, worker)
    }

    /// The same without the program that has just been placed.
    pub(super) fn lasting_obstacle(
        &self,
        program: ProgramId,
        worker: WorkerId,
    ) -> Option<&'static str> {
        let (Some(p), Some(w)) = (self.programs.get(&program), self.workers.get(&worker)) else {
            return Some("is gone");
        };
        // What runs elsewhere does not come along.
        let steps = p.steps.iter().map(|step| &self.steps[step]);
        let waiting = steps.filter(|s| !matches!(s.at, At::Worker(..)));
        let least = waiting.map(|s| self.least_of(s)).max().unwrap_or(0);
        if !w.takes_programs() {
            return Some("is lost, or out of service");
        }
        if p.avoid == Some(worker) && self.another_takes(worker, least) {
            return Some("has just failed it");
        }
        if least > w.context_tokens_max() {
            return Some("takes no context so long");
        }
        let lacks = self.lacks(program, w, &self.programs_on(worker));
        (lacks > 0).then_some(LACKS_ROOM)
    }

    fn another_takes(&self, worker: WorkerId, least_tokens: u64) -> bool {
        let mut others = self
            .workers
            .iter()
            .filter(|(id, w)| **id != worker && w.takes_programs());
        others.any(|(_, w)| least_tokens <= w.context_tokens_max())
    }

    pub(super) fn has_room_somewhere(&self, program: ProgramId) -> Option<WorkerId> {
        let mut workers = self.workers.keys().copied();
        workers.find(|worker| self.obstacle(program, *worker).is_none())
    }

    /// Checks that a placement leaves the worker below its low watermark, or is the only one.
    pub(super) fn check_admission(&self, program: ProgramId, worker: WorkerId) -> Checked {
        let Some(obstacle) = self.lasting_obstacle(program, worker) else {
            return Ok(());
        };
        let placed = self.programs_on(worker);
        let need = self.need_beside(program, &placed);
        let used = self.used_by(&self.workers[&worker], &placed);
        broken(
            "admission",
            format!(
                "{program} needs {need} tokens and is placed on {worker}, which {obstacle}: {used} are in use, {:?} are kept, {} are filled of {:?}",
                self.workers[&worker].kept,
                self.fill_of(&self.workers[&worker]),
                self.workers[&worker].capacity
            ),
        )
    }

    /// A program that has waited beyond the starvation bound is not passed over while there is room
    /// for it.
    pub(super) fn check_turn(&self, program: ProgramId) -> Checked {
        let Some(answered) = &self.answered else {
            return Ok(());
        };
        let own = self.waits_since(program).map(|since| (since, program));
        for other in answered
            .candidates
            .iter()
            .filter(|other| **other != program)
        {
            let Some(since) = self.waits_since(*other) else {
                continue;
            };
            let starved = self.now.since(since) >= self.starvation_bound;
            let before = own.is_none_or(|own| (since, *other) < own);
            // The head alone may use any worker, reserved or not.
            let head = self.head_of_queue().is_some_and(|(_, head)| head == *other);
            if starved
                && before
                && head
                && let Some(worker) = self.has_room_somewhere(*other)
            {
                return broken(
                    "queue-order",
                    format!(
                        "{program} is placed before {other}, which waits since {since:?} and fits on {worker}"
                    ),
                );
            }
        }
        Ok(())
    }

    /// When a program's oldest waiting step began to wait.
    pub(super) fn waits_since(&self, program: ProgramId) -> Option<Timestamp> {
        let p = self.programs.get(&program).filter(|p| p.place.is_none())?;
        let steps = p.steps.iter().map(|step| &self.steps[step]);
        let waiting = steps.filter(|s| matches!(s.at, At::Queue));
        waiting.map(|s| s.waits_since).min()
    }

    pub(super) fn is_starved(&self, program: ProgramId) -> bool {
        let since = self.waits_since(program);
        since.is_some_and(|since| self.now.since(since) >= self.starvation_bound)
    }

    pub(super) fn head_of_queue(&self) -> Option<(Timestamp, ProgramId)> {
        let waiting = self.steps.values().filter(|s| s.at == At::Queue);
        let unplaced = waiting.filter(|s| self.programs[&s.program].place.is_none());
        unplaced.map(|s| (s.waits_since, s.program)).min()
    }

    /// Checks that the core has the same steps, programs, placements, sums and questions.
    pub(super) fn compare(&mut self, core: &Core) -> Checked {
        self.settle_useless_placements(core, &BTreeSet::new());
        self.compare_caches(core)?;
        self.settle_workers();
        let state = core.programs();
        if !state.steps.keys().eq(self.steps.keys()) {
            let core: Vec<StepId> = state.steps.keys().copied().collect();
            return broken(
                "steps",
                format!("open are {:?}, the core has {core:?}", self.steps.keys()),
            );
        }
        for ((id, facts), step) in self.steps.iter().zip(state.steps.values()) {
            let same = match (facts.at, step.state) {
                (At::Queue, StepState::Waiting) => true,
                (At::Worker(here, _), StepState::Running { worker, .. }) => here == worker,
                _ => false,
            };
            if !same {
                return broken(
                    "steps",
                    format!("{id} is at {:?}, the core says {:?}", facts.at, step.state),
                );
            }
        }
        if !state.live.keys().eq(self.programs.keys()) {
            let core: Vec<ProgramId> = state.live.keys().copied().collect();
            return broken(
                "programs",
                format!("live are {:?}, the core has {core:?}", self.programs.keys()),
            );
        }
        if !state.workers.keys().eq(self.workers.keys()) {
            return broken(
                "workers",
                format!(
                    "known are {:?}, the core has {:?}",
                    self.workers, state.workers
                ),
            );
        }
        if !state.asks.open().keys().eq(self.asks.keys()) {
            return broken(
                "questions",
                format!(
                    "open are {:?}, the core has {:?}",
                    self.asks,
                    state.asks.open()
                ),
            );
        }
        if self.config.mode == Mode::LeastLoad {
            return Ok(());
        }
        self.compare_placements(core)?;
        self.compare_fills(core)
    }

    fn compare_placements(&self, core: &Core) -> Checked {
        for (facts, (id, program)) in self.programs.values().zip(&core.programs().live) {
            let place = program.placement.map(|place| place.worker);
            if facts.place != place {
                return broken(
                    "placement",
                    format!(
                        "{id} is placed at {:?}, the core says {place:?}",
                        facts.place
                    ),
                );
            }
        }
        for (id, worker) in &core.programs().workers {
            let used = self.used_tokens(*id);
            if used != worker.used_tokens() {
                let charges = |p: &Program| p.placement.map(|place| (p.id, place.charged_tokens));
                let charges: Vec<_> = worker
                    .programs
                    .iter()
                    .map(|p| charges(&core.programs().live[p]))
                    .collect();
                return broken(
                    "ledger",
                    format!(
                        "{used} tokens are in use on {id}, the core says {}: {charges:?}",
                        worker.used_tokens()
                    ),
                );
            }
        }
        Ok(())
    }

    pub(super) fn settle_workers(&mut self) {
        let gone: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(id, w)| w.leaving && !self.is_used(**id))
            .map(|(id, _)| *id)
            .collect();
        for worker in gone {
            self.workers.remove(&worker);
        }
    }

    fn is_used(&self, worker: WorkerId) -> bool {
        let runs = |at: At| matches!(at, At::Worker(there, _) if there == worker);
        !self.programs_on(worker).is_empty() || self.steps.values().any(|s| runs(s.at))
    }

    /// Checks limits on waits and on memory.
    pub(super) fn check_time(&mut self, core: &Core, event: &Event) -> Checked {
        self.check_wait_bound(event)?;
        self.check_hope()?;
        if !self.is_aware() {
            let open = self.workers.values().any(WorkerFacts::takes_programs);
            return match self.head_of_queue().filter(|_| open) {
                Some((_, program)) => broken(
                    "room",
                    format!("{program} waits, though plain routing never does"),
                ),
                None => Ok(()),
            };
        }
        self.check_candidates(core, event)?;
        self.check_pressure()?;
        self.check_head()?;
        self.check_fairness()
    }

    /// Checks that no step waits that no worker can ever hold.
    fn check_hope(&self) -> Checked {
        let most = self.longest_context();
        let waiting = self.steps.iter().filter(|(_, s)| s.at == At::Queue);
        match waiting.into_iter().find(|(_, s)| self.least_of(s) > most) {
            Some((id, s)) => broken(
                "context",
                format!(
                    "{id} waits, but takes {} tokens where {most} are the most",
                    self.least_of(s)
                ),
            ),
            None => Ok(()),
        }
    }

    /// Checks that no step exceeds the limit on waits.
    fn check_wait_bound(&self, event: &Event) -> Checked {
        if !matches!(event, Event::Daemon(DaemonEvent::TimerFired)) {
            return Ok(());
        }
        for (id, s) in &self.steps {
            let waited = self.now.since(s.waits_since);
            if s.at == At::Queue && waited >= self.config.queue_wait_max {
                return broken(
                    "waits",
                    format!("{id} has waited {waited:?} and still waits"),
                );
            }
        }
        Ok(())
    }

    /// After a restore answer, no candidate that it named, or that is starved, fits anywhere that
    /// is open to it.
    fn check_candidates(&self, core: &Core, event: &Event) -> Checked {
        let Some(answered) = &self.answered else {
            return Ok(());
        };
        if !matches!(event, Event::Program(ProgramEvent::PolicyAnswered { .. })) {
            return Ok(());
        }
        for program in &answered.candidates {
            let waits = self.waits_since(*program).is_some();
            let p = self.programs.get(program).filter(|_| waits);
            let grew = |p: &super::facts::ProgramFacts| {
                p.prefix.iter().any(|s| self.newly_shared.contains(&s.hash))
            };
            if p.is_none_or(grew)
                || (self.is_ranked(*program) && !self.is_starved(*program))
                || !(answered.named.contains(program) || self.is_starved(*program))
            {
                continue;
            }
            for worker in self.workers.keys() {
                let since = |program: ProgramId| (self.waits_since(program), program);
                let holder = core.programs().waiting.reservations().get(worker);
                let open = holder.is_none_or(|holder| since(*program) <= since(*holder));
                if open && self.obstacle(*program, *worker).is_none() {
                    return broken(
                        "room",
                        format!("{program} was passed over, though it fits on {worker}"),
                    );
                }
            }
        }
        Ok(())
    }

    /// While a worker is above its high watermark, no program between steps stays placed there for
    /// longer than it takes to ask about it twice.
    fn check_pressure(&mut self) -> Checked {
        let bound = self.response_us_max();
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        for id in workers {
            let used = self.staying_tokens(id);
            let settled_us = self.settled_us;
            let Some(w) = self.workers.get_mut(&id) else {
                continue;
            };
            let over = w.healthy && used > w.watermark(self.config.high_watermark_ppm);
            w.over_since_us = over.then(|| w.over_since_us.unwrap_or(settled_us));
            let Some(since) = w.over_since_us else {
                w.over_idle_most = 0;
                continue;
            };
            let high = w.watermark(self.config.high_watermark_ppm);
            let most = w.over_idle_most;
            let placed = self.programs_on(id);
            let idle = placed
                .iter()
                .filter(|id| self.programs[id].steps.is_empty());
            let most = most.max(idle.count());
            // A question covers a limited number of programs.
            let questions = 1 + most / (4 * self.config.candidates_max.max(1));
            let bound = bound * questions as u64;
            if let Some(w) = self.workers.get_mut(&id) {
                w.over_idle_most = most;
            }
            for program in placed {
                let p = &self.programs[&program];
                let both = settled_us - since.max(p.idle_since_us);
                if p.steps.is_empty() && self.caches.is_settled(program) && both > bound {
                    return broken(
                        "memory",
                        format!(
                            "{id} has {used} tokens in use of {high}, and {program} stays placed between steps for {both} us"
                        ),
                    );
                }
            }
        }
        Ok(())
    }
}
