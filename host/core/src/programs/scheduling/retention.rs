//! Retention: what is done with the KV caches of acting programs. A program that must not stay
//! placed is offloaded, moved, or loses its cache, whichever the eviction policy chooses or is
//! cheapest.

use crate::estimates::NEVER;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::ranking::Ranking;
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::worker::Worker;
use crate::programs::{CacheAction, Purpose};
use crate::{Mode, Programs};
use treadle_model::{ProgramId, WorkerId};

impl Programs {
    /// Asks what to do with the caches of acting programs at a worker, if its memory is short or a
    /// program waits.
    pub(crate) fn ask_retain(&mut self, worker: WorkerId) {
        if !self.config.kv.retention || self.config.mode != Mode::ProgramAware {
            return;
        }
        let about = |asked| matches!(asked, Purpose::Retain { worker: w, .. } if w == worker);
        if self.state.asks.has(about) {
            return;
        }
        let exposed = self.exposed_tokens(worker);
        let Some(w) = self.state.workers.get(&worker) else {
            return;
        };
        if w.offloads_itself() {
            // The engine offloads the least recently used caches by itself; if that is not enough,
            // programs wait.
            return;
        }
        let slot_tokens = w.capacity.slot_tokens();
        let (low, used, wanted_tokens) = match slot_tokens {
            Some(slot) => self.slots_in_tokens(w, slot),
            None => (
                self.fill_tokens(w),
                self.staying_tokens(w).saturating_add(exposed),
                self.wanted_tokens(),
            ),
        };
        // A worker that takes no programs needs no room for waiting ones.
        let wanted_tokens = if w.takes_programs() { wanted_tokens } else { 0 };
        // Slots can't overflow.
        if wanted_tokens == 0 && (used < low || slot_tokens.is_some()) {
            return;
        }
        let of_slots = slot_tokens.map(|_| low);
        let capacity_tokens = w.capacity.tokens.or(of_slots).unwrap_or(u64::MAX);
        let stays = |program: &ProgramId| self.state.memory.is_settled(*program);
        let candidates = w.idle.iter().copied().filter(stays).collect();
        let free_tokens =
            i64::try_from(low).unwrap_or(i64::MAX) - i64::try_from(used).unwrap_or(i64::MAX);
        let purpose = Purpose::Retain {
            worker,
            capacity_tokens,
            free_tokens,
            wanted_tokens,
        };
        self.ask(purpose, candidates);
    }

    /// The needs of the unplaced programs, for each worker that could take them; with very many
    /// programs only the smallest needs are summed.
    fn wanted_tokens(&self) -> u64 {
        let unplaced = |program: &ProgramId| self.is_unplaced(*program);
        let wanted = self.state.waiting.queue().need_tokens(unplaced);
        wanted.div_ceil(self.open_workers())
    }

    /// Tokens of all slots of a worker, of the taken ones, and of those that the unplaced programs
    /// need. Each program takes a whole slot, and a slot that is held during a tool call is what
    /// others wait for, however few tokens are in it.
    fn slots_in_tokens(&self, w: &Worker, slot: u64) -> (u64, u64, u64) {
        let slots = u64::from(w.capacity.slots.unwrap_or(0));
        let offloads = self.state.memory.offloads();
        let leaves = |program: &&ProgramId| offloads.is_leaving(**program);
        let leaving = w.programs.iter().filter(leaves).count();
        let taken = w.seated_programs().saturating_sub(leaving) as u64;
        let workers = self.open_workers();
        let waiting = self.state.waiting.programs();
        let waiting = waiting.filter(|program| self.is_unplaced(*program));
        // The need is at most all slots of all workers.
        let most = usize::try_from(slots.saturating_mul(workers)).unwrap_or(usize::MAX);
        let wanted = (waiting.take(most).count() as u64).div_ceil(workers);
        (slots * slot, taken * slot, wanted * slot)
    }

    fn open_workers(&self) -> u64 {
        let open = self.state.workers.values().filter(|w| w.takes_programs());
        open.count().max(1) as u64
    }

    /// Tokens in use on a worker by programs that are not about to leave it.
    pub(super) fn staying_tokens(&self, worker: &Worker) -> u64 {
        let leaving = self.state.memory.offloads().leaving();
        let charged = leaving.filter_map(|program| {
            let place = self.state.live.get(&program)?.placement?;
            (place.worker == worker.id).then_some(place.charged_tokens)
        });
        worker.used_tokens().saturating_sub(charged.sum())
    }

    /// Carries out the chosen cache actions that are still possible.
    pub(crate) fn apply_cache_actions(
        &mut self,
        worker: WorkerId,
        actions: &[(ProgramId, CacheAction)],
        ranking: &Ranking,
    ) {
        for (index, (program, action)) in actions.iter().enumerate() {
            if !self.is_pausable_on(*program, worker) || !self.state.memory.is_settled(*program) {
                continue;
            }
            let evaluator = ranking.entries.get(index).map(|e| ranking.evaluator(e));
            let explanation = |kind| {
                let explanation = Explanation::new(kind, Because::LongIdleness);
                evaluator.map_or(explanation, |policy| explanation.by(policy))
            };
            match action {
                CacheAction::Keep => {}
                CacheAction::Offload => {
                    self.offload_or_keep(*program, worker, &explanation(DecisionKind::Offload));
                }
                CacheAction::Migrate => {
                    self.migrate_or_keep(*program, worker, &explanation(DecisionKind::Migrate));
                }
                CacheAction::Drop => {
                    self.explain(*program, worker, &explanation(DecisionKind::Pause));
                    self.pause(*program);
                }
            }
        }
    }

    fn offload_or_keep(
        &mut self,
        program: ProgramId,
        worker: WorkerId,
        explanation: &Explanation<'_>,
    ) {
        if self.can_offload(program) {
            self.explain(program, worker, explanation);
            self.want_offload(program);
        }
    }

    fn migrate_or_keep(
        &mut self,
        program: ProgramId,
        worker: WorkerId,
        explanation: &Explanation<'_>,
    ) {
        if let Some(to) = self.roomiest_but(program, worker) {
            self.explain(program, to, explanation);
            self.want_move(program, to);
        }
    }

    /// Records that a program's cache is to be moved, the longest first.
    pub(crate) fn want_move(&mut self, program: ProgramId, to: WorkerId) {
        let p = self.state.live.get(&program);
        let tokens = p.map_or(0, |p| p.context_tokens);
        let rank = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.state.memory.migrations_mut().want(program, to, rank);
        self.due.moves = true;
    }

    /// Another worker with room for the program, if no other program may be waiting for that room.
    pub(crate) fn roomiest_but(&self, program: ProgramId, worker: WorkerId) -> Option<WorkerId> {
        if self.config.kv.migration_tokens_per_s == 0 || self.has_unplaced() {
            return None;
        }
        let p = self.state.live.get(&program)?;
        let fits = |w: &&Worker| {
            let need = w.need_tokens(p.private_tokens(), &p.prefix);
            w.id != worker
                && self.share_weights(w.id, worker)
                && p.context_tokens <= w.context_tokens_max()
                && self.serves_program(w, p)
                && self.has_room(w, need)
        };
        let fitting = self.state.workers.values().filter(fits);
        let rank = |w: &&Worker| {
            let of_class = p.is_of_class(w);
            (of_class, w.spare_tokens(), std::cmp::Reverse(w.id))
        };
        let roomiest = fitting.max_by_key(rank);
        roomiest.map(|w| w.id)
    }

    /// Ends a program's placement under pressure: with its cache in host memory, if that is quicker
    /// than recomputing it.
    pub(crate) fn send_away(&mut self, program: ProgramId) {
        if self.way_out(program) == DecisionKind::Offload {
            self.want_offload(program);
        } else {
            self.pause(program);
        }
    }

    /// How the program would be sent away.
    pub(crate) fn way_out(&self, program: ProgramId) -> DecisionKind {
        if self.can_offload(program) && self.is_worth_offloading(program) {
            DecisionKind::Offload
        } else {
            DecisionKind::Pause
        }
    }

    fn is_worth_offloading(&self, program: ProgramId) -> bool {
        let Some(p) = self.state.live.get(&program) else {
            return false;
        };
        let back = self.load_time(p.context_tokens);
        back != NEVER && back.0.saturating_mul(2) < self.prefill_time(p.context_tokens).0
    }
}
