//! Restore: which programs get the free room (`ThunderAgent` §4.3.1, §4.3.2).
//!
//! The policy gives the order; the core adds a bound. A program that has waited several times as
//! long as others goes before all that have not. If it fits nowhere, one worker admits no other
//! program until it does, for at most as many such programs at once as there are workers.

use crate::estimates::Forecast;
use crate::programs::Purpose;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::program::Program;
use crate::programs::ranking::{Ranked, Ranking};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::worker::Worker;
use crate::{Mode, Programs};
use std::collections::BTreeSet;
use treadle_model::{ProgramId, Span, StepId, WorkerId};

/// A program that has waited this many times the mean wait goes first.
const STARVATION_WAITS: u64 = 3;
/// The bound without host memory: this many quarters of the time to compute the contexts of all
/// live programs once.
const STARVATION_QUARTERS: u64 = 8;
/// The bound if engines offload by themselves: a program that makes room may find its cache again.
const STARVATION_QUARTERS_OFFLOADED: u64 = 6;

impl Programs {
    /// Asks which program to restore when one is queued and a worker has room.
    pub(crate) fn settle_restores(&mut self) {
        if !self.state.waiting.take_restore_wanted() {
            return;
        }
        if self.config.mode != Mode::ProgramAware {
            if self.state.workers.values().any(Worker::takes_programs) {
                self.route_waiting();
            }
            return;
        }
        let least = self
            .state
            .waiting
            .queue()
            .least_need_tokens()
            .unwrap_or(u64::MAX);
        if self.state.workers.values().any(|w| self.has_room(w, least)) {
            let candidates = self.restore_candidates();
            // While a question is open, gathered programs wait for the next one.
            if self.ask(Purpose::Restore, candidates) {
                self.state.waiting.set_newcomers_due(false);
            }
            self.settle_gathering();
        } else {
            self.ask_for_slots();
        }
    }

    /// If every slot is taken, asks whether programs should keep theirs during tool calls.
    fn ask_for_slots(&mut self) {
        let full = |w: &&Worker| w.takes_programs() && !w.has_free_slot();
        let full: Vec<WorkerId> = self
            .state
            .workers
            .values()
            .filter(full)
            .map(|w| w.id)
            .collect();
        for worker in full {
            self.ask_retain(worker);
        }
    }

    /// Half of the candidates have waited longest, half need least. Among those whose steps a
    /// policy ranks, half are the most urgent instead; new ones are asked about once, all that were
    /// gathered.
    fn restore_candidates(&self) -> Vec<ProgramId> {
        let half = self.config.candidates_max.div_ceil(2).max(1);
        let waiting = &self.state.waiting;
        let plain = |program: &ProgramId| self.is_unplaced(*program) && !self.is_ranked(*program);
        let longest = waiting.programs().filter(plain).take(half);
        let smallest = waiting.queue().smallest().filter(plain).take(half);
        let ranked = self.ranked_candidates(half);
        // The longest waiting first: a question may not cover them all.
        let newcomers = waiting.newcomers();
        let gathered = if waiting.are_newcomers_due() {
            self.config.rollout.programs_max.max(1).min(newcomers.len())
        } else {
            0
        };
        let gathered = waiting
            .programs()
            .filter(|program| newcomers.contains(program))
            .take(gathered);
        let mut seen = BTreeSet::new();
        let all = longest.chain(smallest).chain(ranked);
        all.chain(gathered)
            .filter(|program| seen.insert(*program))
            .collect()
    }

    /// Waiting programs whose steps a policy ranks and that were asked about before: the most
    /// urgent by its latest answers, and those that have waited longest.
    fn ranked_candidates(&self, half: usize) -> Vec<ProgramId> {
        if self.ranked_jobs.is_empty() {
            return Vec::new();
        }
        let rated = self
            .state
            .waiting
            .queue()
            .oldest()
            .filter_map(|(_, program)| {
                let p = self.state.live.get(&program)?;
                let waits = p.placement.is_none() && self.is_ranked(program);
                Some((std::cmp::Reverse(p.urgency.filter(|_| waits)?), program))
            });
        let mut rated: Vec<_> = rated.collect();
        let oldest: Vec<_> = rated.iter().take(half).copied().collect();
        if rated.len() > half {
            rated.select_nth_unstable(half);
            rated.truncate(half);
        }
        rated.sort_unstable();
        let both = rated.into_iter().chain(oldest);
        both.map(|(_, program)| program).collect()
    }

    /// Places waiting programs in the given order as far as they fit.
    pub(crate) fn restore_in_order(&mut self, ranking: &Ranking) {
        self.renew_reservations();
        for entry in &ranking.entries {
            self.note_urgency(entry);
        }
        let mut forecast = Forecast::default();
        let (starved, rest): (Vec<&Ranked>, Vec<_>) = ranking
            .entries
            .iter()
            .partition(|entry| self.is_starved(entry.program));
        let mut starved = starved;
        starved.sort_by_key(|entry| self.queue_position(entry.program));
        let mut room = self.most_room();
        let starved = starved.into_iter().map(|e| (e, Because::DeferralBound));
        for (entry, because) in starved.chain(rest.into_iter().map(|e| (e, Because::RoomOnWorker)))
        {
            let program = entry.program;
            // A program beyond the starvation bound takes any worker with room.
            let takes_turn = because == Because::RoomOnWorker && self.is_ranked(program);
            if self.private_tokens(program) > room && !takes_turn {
                continue;
            }
            let worker = if takes_turn {
                self.worker_in_turn(entry, &mut forecast)
            } else {
                self.worker_with_room(program, entry.wished)
            };
            let Some(worker) = worker else {
                continue;
            };
            let first = self
                .state
                .live
                .get(&program)
                .is_none_or(|p| p.last_worker.is_none());
            let kind = if first {
                DecisionKind::Place
            } else {
                DecisionKind::Restore
            };
            let mut explanation = Explanation::new(kind, because)
                .by(ranking.evaluator(entry))
                .among(&ranking.entries);
            if entry.wished == Some(worker) {
                explanation.placed_by = ranking.placer(entry);
            }
            self.explain(program, worker, &explanation);
            self.restore(entry, worker, first);
            room = self.most_room();
        }
    }

    fn restore(&mut self, entry: &Ranked, worker: WorkerId, first: bool) {
        let program = entry.program;
        self.learn_wait(program);
        if !first {
            self.state.counters.restores += 1;
            let last = self.state.live.get(&program).and_then(|p| p.last_worker);
            self.state.counters.moves += u64::from(last != Some(worker));
        }
        self.place(program, worker);
        self.relieve(worker);
        if self.begin_load(program) {
            self.add_prompts_to_come(program, worker);
        } else if self.waits_in_line(program) {
            self.send_placed(worker, entry);
        } else {
            self.dispatch_waiting(program, worker);
        }
    }

    /// Where to place an acting program before its tool returns: where its cache may linger,
    /// otherwise where most is free.
    pub(super) fn worker_for_prefetch(&self, program: ProgramId) -> Option<WorkerId> {
        let p = self.state.live.get(&program)?;
        let may = |w: &&Worker| {
            let need = w.need_tokens(p.private_tokens(), &p.prefix);
            self.may_take(w, p, p.context_tokens) && self.has_room(w, need)
        };
        let has_own = self.has_class_with(p, may);
        let fits = |w: &&Worker| (!has_own || p.is_of_class(w)) && may(w);
        let last = p.last_worker.and_then(|id| self.state.workers.get(&id));
        let fitting = || self.state.workers.values().filter(fits);
        let roomiest = || fitting().max_by_key(|w| (w.spare_tokens(), std::cmp::Reverse(w.id)));
        last.filter(fits).or_else(roomiest).map(|w| w.id)
    }

    /// Renews reservations: of the starved programs, those that have waited longest, at most one
    /// per worker, reserve the workers that lack least for them if they fit nowhere, and room is
    /// made there.
    fn renew_reservations(&mut self) {
        let starved = self.starved_unplaced();
        self.state.waiting.keep_reservations_of(&starved);
        for program in starved {
            let mut holders = self.state.waiting.reservations().values();
            if holders.any(|holder| *holder == program)
                || self.worker_with_room(program, None).is_some()
            {
                continue;
            }
            if let Some((shortfall, worker)) = self.least_shortfall(program) {
                self.state.waiting.reserve(worker, program);
                self.ask_pause(worker, shortfall);
            }
        }
    }

    /// Renews the reservations and asks for room again: other workers may lack least by now.
    pub(crate) fn make_room_for_starved(&mut self) {
        self.state.waiting.keep_reservations_of(&[]);
        self.renew_reservations();
    }

    fn starved_unplaced(&self) -> Vec<ProgramId> {
        let waiting = self.state.waiting.programs();
        // No worker can be reserved for a suspended one, which may have waited for less than those
        // behind it.
        let may = |program: &ProgramId| self.is_unplaced(*program) && !self.is_suspended(*program);
        let unplaced = waiting.filter(may);
        let starved = unplaced.take_while(|program| self.is_starved(*program));
        starved.take(self.state.workers.len()).collect()
    }

    /// The worker that lacks least for the program, among those that no other reserves.
    fn least_shortfall(&self, program: ProgramId) -> Option<(u64, WorkerId)> {
        let p = self.state.live.get(&program)?;
        let least = self.prompt_tokens_least(p);
        let workers = self.state.workers.values();
        workers
            .filter(|w| {
                !self.state.waiting.reservations().contains_key(&w.id) && self.may_take(w, p, least)
            })
            .map(|w| (self.shortfall(p, w), w.id))
            .min()
    }

    /// Tokens that must leave the worker for a program to fit there.
    fn shortfall(&self, p: &Program, w: &Worker) -> u64 {
        let need = w.need_tokens(p.private_tokens(), &p.prefix);
        // Without a free slot one program must leave, however much memory is free.
        let lacks_slot = u64::from(!w.has_free_slot());
        self.lacking_tokens(w, need).max(lacks_slot)
    }

    /// Tokens that the program which reserves this worker still lacks there.
    pub(super) fn lacking_for_starved(&self, worker: WorkerId) -> u64 {
        let holder = self.state.waiting.reservations().get(&worker);
        let holder = holder.and_then(|holder| self.state.live.get(holder));
        let worker = self.state.workers.get(&worker);
        holder.zip(worker).map_or(0, |(p, w)| self.shortfall(p, w))
    }

    fn queue_position(&self, program: ProgramId) -> (treadle_model::Timestamp, ProgramId) {
        let entry = self.state.live.get(&program).and_then(|p| p.queued);
        (entry.map(|e| e.since).unwrap_or_default(), program)
    }

    pub(crate) fn is_starved(&self, program: ProgramId) -> bool {
        let waited = self.state.live.get(&program).and_then(|p| self.waited(p));
        waited.is_some_and(|waited| waited >= self.starvation_bound())
    }

    /// The wait after which a program goes first. If caches can be offloaded, the program that
    /// makes room for it comes back cheaply, and the bound follows the present waits. Otherwise it
    /// has to be computed again: then nobody should wait for much longer than if all programs were
    /// served in turn, and computed each time; less if engines offload.
    pub(crate) fn starvation_bound(&self) -> Span {
        let bound = if self.config.kv.host_tokens_max > 0 {
            let waits = self.state.estimates.wait_mean().micros();
            Span(waits.saturating_mul(STARVATION_WAITS))
        } else {
            let holding = |w: &&Worker| w.is_healthy() && w.holds_programs();
            let healthy = || self.state.workers.values().filter(holding);
            let share = self.state.context_tokens / (healthy().count().max(1) as u64);
            let quarters = if healthy().any(Worker::offloads_itself) {
                STARVATION_QUARTERS_OFFLOADED
            } else {
                STARVATION_QUARTERS
            };
            Span(self.prefill_time(share).0.saturating_mul(quarters) / 4)
        };
        let (least, most) = (self.config.deferral_min, self.config.deferral_max);
        bound.max(least).min(most)
    }

    /// The minimum duration of a placement before its memory may be taken for a starved program.
    pub(super) fn quantum(&self) -> Span {
        let bound = u128::from(self.starvation_bound().0);
        let part = bound * u128::from(self.config.quantum_ppm) / 1_000_000;
        Span(u64::try_from(part).unwrap_or(u64::MAX))
    }

    fn learn_wait(&mut self, program: ProgramId) {
        let waited = self.state.live.get(&program).and_then(|p| self.waited(p));
        if let Some(waited) = waited {
            self.state.estimates.waited(waited);
        }
    }

    /// The worker for a waiting program among those with room: the one that a policy chose, otherwise
    /// the one where its cache may linger, otherwise the one with most free, or that one's rank with
    /// least to do; the latter two of the class of hardware that it prefers, if any of that has
    /// room.
    pub(super) fn worker_with_room(
        &self,
        program: ProgramId,
        wished: Option<WorkerId>,
    ) -> Option<WorkerId> {
        let p = self
            .state
            .live
            .get(&program)
            .filter(|p| p.queued.is_some() && p.placement.is_none())?;
        let least = self.prompt_tokens_least(p);
        let loading = self.loading_for(program);
        let may = |w: &&Worker| !loading.contains(&w.id) && self.admits(w, p, least);
        let workers = &self.state.workers;
        if let Some(wished) = wished.and_then(|id| workers.get(&id)).filter(may) {
            return Some(wished.id);
        }
        let has_own = self.has_class_with(p, may);
        let admits = |w: &&Worker| (!has_own || p.is_of_class(w)) && may(w);
        let named = |id: Option<WorkerId>| workers.get(&id?).filter(admits);
        let emptiest = || {
            let fitting = workers.values().filter(admits);
            let emptiest = fitting.max_by_key(|w| (w.spare_tokens(), std::cmp::Reverse(w.id)))?;
            Some(self.rank_for(p, emptiest, admits))
        };
        let worker = named(p.last_worker);
        let worker = worker.or_else(|| named(self.worker_of_forked(p)));
        worker.or_else(emptiest).map(|w| w.id)
    }

    /// Workers that a program's cache can't be loaded to now.
    pub(super) fn loading_for(&self, program: ProgramId) -> BTreeSet<WorkerId> {
        if self.state.memory.copy_of(program).is_some() {
            self.loading()
        } else {
            BTreeSet::new()
        }
    }

    /// True if the worker takes the program now, whose prompts have at least `least` tokens.
    pub(crate) fn admits(&self, w: &Worker, p: &Program, least: u64) -> bool {
        self.admits_with(w, p, p.private_tokens(), least)
    }

    /// The same for a program that will need `private` private tokens.
    pub(super) fn admits_with(&self, w: &Worker, p: &Program, private: u64, least: u64) -> bool {
        // Most workers lack room even for the private tokens, which is quick to check.
        self.is_open(w.id, p)
            && self.has_room(w, private)
            && self.may_take(w, p, least)
            && self.has_room(w, w.need_tokens(private, &p.prefix))
    }

    /// True if the worker could take the program, given room: it serves its model and takes its
    /// prompts, which have at least `least` tokens, and it has neither just failed the program nor
    /// reported that it is busy while another one could take it.
    pub(super) fn may_take(&self, worker: &Worker, program: &Program, least: u64) -> bool {
        let now = self.state.now;
        let could = |w: &Worker| {
            w.takes_programs() && least <= w.context_tokens_max() && self.serves_program(w, program)
        };
        let mut others = self.state.workers.values().filter(|w| w.id != worker.id);
        let is_passed_over = if worker.is_busy(now) {
            others.any(|w| could(w) && !w.is_busy(now))
        } else {
            program.avoid == Some(worker.id) && others.any(could)
        };
        could(worker) && !is_passed_over
    }

    /// True if another worker could take a step that a busy one has just turned away, unless other
    /// steps bind its program to the busy one.
    pub(crate) fn has_another(&self, step: StepId, program: ProgramId, busy: WorkerId) -> bool {
        let Some(p) = self.state.live.get(&program) else {
            return false;
        };
        let now = self.state.now;
        let could = |w: &Worker| {
            w.id != busy && w.takes_programs() && !w.is_busy(now) && self.takes_prompt(w.id, step)
        };
        p.running.len() <= 1 && self.state.workers.values().any(could)
    }

    /// The most private tokens that any worker has room for. Most candidates need more, and skip
    /// the search for a worker.
    fn most_room(&self) -> u64 {
        let open = self.state.workers.values().filter(|w| self.has_room(w, 0));
        let room = |w: &Worker| {
            if w.is_empty() {
                u64::MAX
            } else {
                self.free_tokens(w).max(self.idle_tokens(w).unwrap_or(0))
            }
        };
        open.map(room).max().unwrap_or(0)
    }

    /// True if no program that has waited longer reserves the worker.
    fn is_open(&self, worker: WorkerId, program: &Program) -> bool {
        let holder = self.state.waiting.reservations().get(&worker);
        holder.is_none_or(|holder| {
            let waits = program.queued.is_some();
            waits && self.queue_position(program.id) <= self.queue_position(*holder)
        })
    }

    fn private_tokens(&self, program: ProgramId) -> u64 {
        self.state
            .live
            .get(&program)
            .map_or(u64::MAX, Program::private_tokens)
    }

    /// True if the worker may take a program that needs this much.
    pub(crate) fn has_room(&self, worker: &Worker, need_tokens: u64) -> bool {
        worker.takes_programs()
            && worker.has_free_slot()
            && !self.is_backlogged(worker)
            && self.lacking_tokens(worker, need_tokens) == 0
    }

    /// Tokens that must leave a worker so that it stays below its fill with a program that needs
    /// `need_tokens`, including its present excess. An empty worker takes any program.
    fn lacking_tokens(&self, worker: &Worker, need_tokens: u64) -> u64 {
        let used = worker.used_tokens().saturating_add(need_tokens);
        let lacking = used.saturating_sub(self.fill_tokens(worker));
        let fits = lacking == 0
            || worker.is_empty()
            || self
                .idle_tokens(worker)
                .is_some_and(|free| need_tokens <= free);
        if fits { 0 } else { lacking }
    }

    /// Memory beside that of the only busy program of an engine, or of an idle engine; `None` if
    /// more are busy. Caches of programs in tool calls may be lost to it: that costs less than an
    /// engine that stands still while programs wait. If treadle can offload or move caches, it
    /// makes room without losing them.
    fn idle_tokens(&self, worker: &Worker) -> Option<u64> {
        let kv = &self.config.kv;
        let moves_caches = kv.host_tokens_max > 0 || kv.migration_tokens_per_s > 0;
        let has_slots = worker.capacity.slots.is_some();
        if moves_caches
            || has_slots
            || worker.busy_programs() > 1
            || !worker.ledger.kept().is_empty()
        {
            return None;
        }
        let busy = worker.programs.difference(&worker.idle);
        let busy = busy.filter_map(|program| self.state.live.get(program));
        let used: u64 = busy
            .map(|p| p.private_tokens().saturating_add(p.prefix_tokens()))
            .sum();
        let used = used.saturating_add(worker.ledger.untracked_tokens());
        let capacity = worker.capacity.tokens.unwrap_or(u64::MAX);
        Some(capacity.saturating_sub(used))
    }

    /// Tokens left below the fill, usually the low watermark. Between it and the high one is the
    /// room into which programs grow before any must be paused.
    pub(crate) fn free_tokens(&self, worker: &Worker) -> u64 {
        self.fill_tokens(worker)
            .saturating_sub(worker.used_tokens())
    }
}
