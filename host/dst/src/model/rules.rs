//! The rules: ledgers and placements agree, memory use and waits stay within their limits, and the
//! queue is served in order.

use super::Model;
use super::facts::{At, WorkerFacts};
use super::memory::prefix_of;
use std::collections::BTreeSet;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::StepState;
use treadle_core::programs::{FULL_WEIGHT_PPM, Program};
use treadle_core::{Core, DaemonEvent, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{ProgramId, StepId, Timestamp, WorkerId};

impl Model {
    /// A program that has waited beyond the starvation bound is not passed over while there is room
    /// for it.
    pub(super) fn check_turn(&self, core: &Core, program: ProgramId) -> Checked {
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
                && let Some(worker) = self.has_room_somewhere(core, *other)
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
        self.end_placements(core, &BTreeSet::new())?;
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
        if self.is_plain_router() {
            return Ok(());
        }
        self.compare_placements(core)
    }

    fn compare_placements(&self, core: &Core) -> Checked {
        for (facts, (id, program)) in self.programs.values().zip(&core.programs().live) {
            if !facts.steps.is_empty() && program.weight_ppm != FULL_WEIGHT_PPM {
                let weight = program.weight_ppm;
                return broken("ledger", format!("{id} is at work and counts {weight} ppm"));
            }
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
            let used = self.used_tokens(core, *id);
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
        self.check_pressure(core)?;
        self.check_head(core)?;
        self.check_fairness(core)
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
            // What another one has brought along makes it need less than in its turn.
            let mut prefix = prefix_of(core, *program).iter();
            let shrank = prefix.any(|s| self.newly_shared.contains(&s.hash));
            if !waits
                || shrank
                || (self.is_ranked(*program) && !self.is_starved(*program))
                || !(answered.named.contains(program) || self.is_starved(*program))
            {
                continue;
            }
            for worker in self.workers.keys() {
                let since = |program: ProgramId| (self.waits_since(program), program);
                let holder = core.programs().waiting.reservations().get(worker);
                let open = holder.is_none_or(|holder| since(*program) <= since(*holder));
                if open && self.obstacle(core, *program, *worker).is_none() {
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
    fn check_pressure(&mut self, core: &Core) -> Checked {
        let bound = self.response_us_max();
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        for id in workers {
            let used = self.staying_tokens(core, id);
            let high = self.watermark(core, id, self.config.high_watermark_ppm);
            let settled_us = self.settled_us;
            let Some(w) = self.workers.get_mut(&id) else {
                continue;
            };
            let over = w.healthy && used > high;
            w.over_since_us = over.then(|| w.over_since_us.unwrap_or(settled_us));
            let Some(since) = w.over_since_us else {
                w.over_idle_most = 0;
                continue;
            };
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
