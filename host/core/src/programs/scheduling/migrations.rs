//! Migration (`Heddle` §5.3): a program that should be on another worker is moved while its tool
//! runs, the longest first, and no worker sends or receives two caches at once. A step that comes
//! back early waits for the rest of the transfer unless recomputing its context would be quicker;
//! then the migration is cancelled.

use crate::Programs;
use crate::memory::{Direction, Move};
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::ranking::Ranking;
use crate::programs::timers::Timer;
use crate::programs::worker::Worker;
use crate::programs::{ProgramCommand, Purpose};
use treadle_model::{ProgramId, StepId, WorkerId};

impl Programs {
    /// The question is asked only while some program of a job with a placement policy could be
    /// moved.
    pub(super) fn settle_migrations(&mut self) {
        let interval = self.config.rollout.migration_interval;
        let moves = interval.0 > 0 && self.config.kv.migration_tokens_per_s > 0;
        if !moves || self.placed_jobs.is_empty() || self.state.timers.has_single(Timer::Migrate) {
            return;
        }
        let has_programs = |w: &Worker| !w.programs.is_empty();
        if self.state.workers.len() < 2 || !self.state.workers.values().any(has_programs) {
            return;
        }
        let at = self.state.now + interval;
        self.state.timers.arm_single(at, Timer::Migrate);
    }

    /// Asks which programs should be on another worker.
    pub(crate) fn ask_migrate(&mut self) {
        if self.config.kv.migration_tokens_per_s == 0 {
            return;
        }
        let most = self.config.rollout.programs_max.max(1);
        let programs = self.state.live.values();
        let placed = programs.filter(|p| p.placement.is_some() && !p.closing);
        let movable = placed.filter(|p| self.placed_jobs.contains(&p.job));
        let movable = movable.map(|p| p.id).take(most).collect();
        self.ask(Purpose::Migrate, movable);
    }

    /// The answer replaces earlier wanted migrations; running ones continue.
    pub(crate) fn want_moves(&mut self, ranking: &Ranking) {
        self.state.memory.migrations_mut().withdraw_all();
        for entry in &ranking.entries {
            let place = self.healthy_worker_of(entry.program);
            let (Some(at), Some(to)) = (place, entry.wished) else {
                continue;
            };
            if at == to
                || !self.share_weights(at, to)
                || !self.could_hold(entry.program, to)
                || !self.state.memory.is_at_rest(entry.program)
            {
                continue;
            }
            let (kind, because) = (DecisionKind::Migrate, Because::RankChanged);
            self.record_decision(kind, because, to, entry, ranking);
            let rank = entry.score.round() as i64;
            let migrations = self.state.memory.migrations_mut();
            migrations.want(entry.program, to, rank);
        }
        self.start_moves();
    }

    /// True if a worker takes programs, contexts as long as the program's, and its model.
    fn could_hold(&self, program: ProgramId, worker: WorkerId) -> bool {
        let (Some(p), Some(w)) = (
            self.state.live.get(&program),
            self.state.workers.get(&worker),
        ) else {
            return false;
        };
        let context = p.context_tokens.max(self.prompt_tokens_least(p));
        w.takes_programs() && context <= w.context_tokens_max() && self.serves_program(w, p)
    }

    /// Places a program at another worker. Steps that wait for their turn go along.
    pub(super) fn place_elsewhere(&mut self, program: ProgramId, to: WorkerId) {
        let waiting = self.state.live.get(&program).map(|p| p.waiting.clone());
        let is_routed = |step: &StepId| self.state.steps.get(step).is_some_and(|s| s.routed);
        let routed = waiting.into_iter().flatten().filter(is_routed);
        let routed: Vec<StepId> = routed.collect();
        self.unplace(program);
        for step in routed {
            if let Some(s) = self.state.steps.get_mut(&step) {
                s.routed = true;
            }
        }
        self.place(program, to);
        self.state.counters.moves += 1;
    }

    /// Starts the migrations that can start: both ends free, the program between steps.
    pub(super) fn start_moves(&mut self) {
        let memory = &self.state.memory;
        if memory.migrations().wanted().is_empty() {
            return;
        }
        let mut busy = memory.migrations().busy();
        busy.extend(memory.offloads().busy(Direction::Out));
        for (program, to) in memory.migrations().by_rank() {
            let Some(p) = self.state.live.get(&program) else {
                continue;
            };
            let transfers = self.state.memory.offloads();
            if transfers.is_leaving(program) || transfers.is_returning(program) {
                continue;
            }
            if !p.is_between_steps() || p.steps_finished == 0 || busy.contains(&to) {
                continue;
            }
            let Some(from) = self
                .healthy_worker_of(program)
                .filter(|at| !busy.contains(at))
            else {
                continue;
            };
            let Some(to) = self.destination(program, from, to) else {
                continue;
            };
            if busy.contains(&to) {
                continue;
            }
            self.state.memory.migrations_mut().withdraw(program);
            busy.extend([from, to]);
            self.start_move(program, from, to);
        }
    }

    /// The worker that a program moves to. A program that its destination does not take, or whose
    /// cache would be one of other weights there, stays where it is, unless its worker is draining.
    fn destination(
        &mut self,
        program: ProgramId,
        from: WorkerId,
        to: WorkerId,
    ) -> Option<WorkerId> {
        if from != to && self.share_weights(from, to) && self.could_take(program, to) {
            return Some(to);
        }
        self.state.memory.migrations_mut().withdraw(program);
        self.leave_draining(program);
        self.state.memory.wanted_at(program)
    }

    fn start_move(&mut self, program: ProgramId, from: WorkerId, to: WorkerId) {
        let p = &self.state.live[&program];
        let (tokens, need) = (p.context_tokens, p.private_tokens());
        let from_slot = p.placement.and_then(|place| place.slot);
        let target = self.state.workers.get_mut(&to);
        let to_slot = target.and_then(|w| w.keep_room(program, need));
        let since = self.state.now;
        let begun = Move {
            from,
            to,
            tokens,
            since,
        };
        self.state.memory.migrations_mut().begin(program, begun);
        self.account(program);
        let deadline = since + self.config.kv.transfer_max;
        self.state.timers.arm(deadline, Timer::Transfer(program));
        self.command(ProgramCommand::MigrateProgram {
            program,
            from,
            to,
            from_slot,
            to_slot,
            tokens,
        });
    }

    /// True if a worker takes a program, and has room for it.
    pub(super) fn could_take(&self, program: ProgramId, to: WorkerId) -> bool {
        let (Some(p), Some(w)) = (self.state.live.get(&program), self.state.workers.get(&to))
        else {
            return false;
        };
        let open = !self.state.waiting.reservations().contains_key(&to);
        open && self.may_take(w, p, self.prompt_tokens_least(p))
            && self.has_room(w, w.need_tokens(p.private_tokens(), &p.prefix))
    }

    /// Removes a migration and the room reserved for it.
    fn end_move(&mut self, program: ProgramId) -> Option<(Move, Option<u32>)> {
        let ended = self.state.memory.migrations_mut().end(program)?;
        let deadline = ended.since + self.config.kv.transfer_max;
        self.state.timers.disarm(deadline, Timer::Transfer(program));
        let to = self.state.workers.get_mut(&ended.to);
        let slot = to.and_then(|w| w.ledger.give_room_back(program));
        self.account(program);
        self.due.moves = true;
        self.due.offloads = true;
        Some((ended, slot))
    }

    /// The transfer executor does not answer.
    pub(crate) fn move_exceeded(&mut self, program: ProgramId) {
        if self.is_moving(program) {
            self.command(ProgramCommand::CancelTransfer { program });
            self.migration_failed(program);
        }
    }

    /// True if a step has to wait for its program's cache. A migration that would take longer than
    /// recomputing the context is cancelled.
    pub(super) fn waits_for_move(&mut self, program: ProgramId) -> bool {
        let Some(begun) = self.state.memory.move_of(program).copied() else {
            return false;
        };
        if self.left_us(&begun) <= self.prefill_time(begun.tokens).micros() {
            return true;
        }
        self.give_up_move(program);
        false
    }

    fn left_us(&self, begun: &Move) -> u64 {
        let whole = self.move_time(begun.tokens).micros();
        whole.saturating_sub(self.state.now.since(begun.since).micros())
    }

    pub(crate) fn give_up_move(&mut self, program: ProgramId) {
        self.state.memory.migrations_mut().withdraw(program);
        if self.end_move(program).is_some() {
            self.state.counters.migrations_cancelled += 1;
            self.command(ProgramCommand::CancelTransfer { program });
        }
    }

    /// The cache has arrived: places the program there.
    pub(crate) fn program_migrated(&mut self, program: ProgramId, to: WorkerId) {
        let ended = self.state.memory.move_of(program).copied();
        if ended.is_none_or(|ended| ended.to != to) {
            // The migration was cancelled meanwhile.
            return;
        }
        let ended = self.end_move(program);
        if let Some((ended, _)) = &ended {
            let now = self.state.now;
            let took = now.since(ended.since);
            self.state.estimates.moved(now, ended.tokens, took);
        }
        let slot = ended.and_then(|(_, slot)| slot);
        let takes = self
            .state
            .workers
            .get(&to)
            .is_some_and(Worker::takes_programs);
        if takes && self.state.live.contains_key(&program) {
            self.state.counters.migrations += 1;
            self.unplace(program);
            self.place_at(program, to, slot);
            self.note_warm(program);
        }
        self.ask_again(program);
    }

    pub(crate) fn migration_failed(&mut self, program: ProgramId) {
        if let Some((ended, _)) = self.end_move(program) {
            self.state.counters.migrations_cancelled += 1;
            if self.is_draining(ended.from) {
                // The program leaves without its cache: the next attempt might fail too.
                self.pause(program);
            }
            self.ask_again(program);
        }
    }

    /// Routes the steps that waited for the migration.
    pub(crate) fn ask_again(&mut self, program: ProgramId) {
        let waiting = self.state.live.get(&program).map(|p| p.waiting.clone());
        for step in waiting.unwrap_or_default() {
            self.reroute(step);
        }
    }

    /// Ends migrations from or to a worker that is gone.
    pub(crate) fn end_moves_of(&mut self, worker: WorkerId) {
        self.end_moves(|m| m.from == worker);
        self.end_moves_to(worker);
    }

    /// Ends migrations to a worker that no longer takes programs.
    pub(crate) fn end_moves_to(&mut self, worker: WorkerId) {
        self.end_moves(|m| m.to == worker);
        self.state.memory.migrations_mut().withdraw_to(worker);
    }

    fn end_moves(&mut self, ends: impl Fn(&Move) -> bool) {
        let moving = self.state.memory.migrations().moving().iter();
        let ended: Vec<ProgramId> = moving.filter(|(_, m)| ends(m)).map(|(p, _)| *p).collect();
        for program in ended {
            self.give_up_move(program);
            self.ask_again(program);
        }
    }

    pub(crate) fn is_moving(&self, program: ProgramId) -> bool {
        self.state.memory.move_of(program).is_some()
    }
}
