//! Offloading: transfers of caches to host memory and back. One cache at a time leaves an engine,
//! and offloads get only a share of its link, so that loads, for which a step may be waiting, find
//! it free (`ThunderAgent`, Appendix E, saw offloading lose when it filled the link).

use crate::memory::{Direction, HeldCopy, Leaving, Transfer};
use crate::programs::ProgramCommand;
use crate::programs::timers::Timer;
use crate::{Mode, Programs};
use std::collections::BTreeSet;
use treadle_model::{ProgramId, WorkerId};

impl Programs {
    /// True if a program's cache may go to host memory: host memory exists, and room can be made by
    /// evicting caches that are needed later.
    pub(super) fn can_offload(&self, program: ProgramId) -> bool {
        let Some(p) = self.state.live.get(&program) else {
            return false;
        };
        let most = self.config.kv.host_tokens_max;
        let has_cache = p.steps_finished > 0 && p.context_tokens > 0;
        let in_time = self.config.mode == Mode::ProgramAware;
        in_time && has_cache && p.context_tokens <= most && self.state.memory.is_at_rest(program)
    }

    /// Marks a program's cache to be offloaded; the program stays placed until the copy exists.
    pub(crate) fn want_offload(&mut self, program: ProgramId) {
        self.state.memory.want_offload(program);
        self.due.offloads = true;
        self.account(program);
    }

    /// Starts the transfers that an event has made possible.
    pub(crate) fn settle_transfers(&mut self) {
        if std::mem::take(&mut self.due.offloads) {
            self.start_offloads();
        }
        if self.due.moves {
            self.start_moves();
        }
        if self.due.offloads {
            // A program that could not be moved may go to host memory instead.
            self.start_offloads();
        }
        self.settle_migrations();
    }

    /// True if a step has to wait for its program's cache.
    pub(super) fn waits_for_cache(&mut self, program: ProgramId) -> bool {
        self.waits_for_move(program) || self.waits_for_load(program)
    }

    /// Starts the offloads that the links allow, the largest first.
    fn start_offloads(&mut self) {
        let memory = &self.state.memory;
        if memory.offloads().wanted().is_empty() {
            return;
        }
        let leaving = |program: ProgramId| {
            let p = self.state.live.get(&program)?;
            let worker = p.placement?.worker;
            let tokens = p.context_tokens;
            Some(Leaving { worker, tokens })
        };
        let (wanted, mut busy) = memory.offloads().plan(self.state.now, leaving);
        busy.extend(memory.migrations().busy());
        for (program, worker) in wanted {
            // A program without room in host memory leaves the link to the next.
            if !busy.contains(&worker) && self.start_offload(program) {
                busy.insert(worker);
            }
        }
        self.watch_links();
    }

    /// Starts an offload; false if it can't.
    fn start_offload(&mut self, program: ProgramId) -> bool {
        self.state.memory.offloads_mut().withdraw(program);
        let Some(p) = self.state.live.get(&program) else {
            return false;
        };
        let (Some(place), tokens) = (p.placement, p.context_tokens) else {
            return false;
        };
        if !self.make_room_in_host(program, tokens) {
            // Host memory is full of caches that are needed sooner.
            self.pause(program);
            return false;
        }
        self.begin_transfer(program, Direction::Out, place.worker, tokens);
        self.command(ProgramCommand::OffloadProgram {
            program,
            from: place.worker,
            slot: place.slot,
            tokens,
        });
        true
    }

    fn begin_transfer(
        &mut self,
        program: ProgramId,
        direction: Direction,
        worker: WorkerId,
        tokens: u64,
    ) {
        let since = self.state.now;
        let deadline = since + self.config.kv.transfer_max;
        self.state.timers.arm(deadline, Timer::Transfer(program));
        let transfer = Transfer {
            direction,
            worker,
            tokens,
            since,
            deadline,
        };
        self.state.memory.offloads_mut().begin(program, transfer);
        self.account(program);
    }

    /// Removes a transfer, which frees its link.
    fn end_transfer(&mut self, program: ProgramId) -> Option<Transfer> {
        let (now, share) = (self.state.now, self.config.kv.offload_link_ppm);
        let transfer = self.state.memory.offloads_mut().end(program, now, share)?;
        let timer = Timer::Transfer(program);
        self.state.timers.disarm(transfer.deadline, timer);
        if transfer.direction == Direction::Out {
            self.due.moves = true;
        }
        self.due.offloads = true;
        self.account(program);
        Some(transfer)
    }

    /// Arms a timer for when the next link may be used, if a program waits for it.
    fn watch_links(&mut self) {
        let wanted = self.state.memory.offloads().wanted().iter();
        let waits: BTreeSet<WorkerId> = wanted
            .filter_map(|program| Some(self.state.live.get(program)?.placement?.worker))
            .collect();
        let (now, offloads) = (self.state.now, self.state.memory.offloads_mut());
        if let Some(next) = offloads.watch_links(now, &waits) {
            self.state.timers.arm(next, Timer::Link);
        }
    }

    pub(crate) fn link_free(&mut self) {
        self.state.memory.offloads_mut().link_timer_fired();
        self.due.offloads = true;
    }

    /// Cancels whatever is happening to a program's cache, which stays valid where it was.
    pub(crate) fn give_up_transfer(&mut self, program: ProgramId) {
        if self.state.memory.offloads_mut().withdraw(program) {
            self.account(program);
        }
        if self.end_transfer(program).is_some() {
            self.command(ProgramCommand::CancelTransfer { program });
        }
    }

    /// Handles a step of a placed program that has come: a cache about to leave stays. True if the
    /// step has to wait for its cache, which is being loaded.
    fn waits_for_load(&mut self, program: ProgramId) -> bool {
        let Some(transfer) = self.state.memory.transfer_of(program).copied() else {
            self.give_up_transfer(program);
            return false;
        };
        if transfer.direction == Direction::Out || !self.pays_to_wait(&transfer) {
            self.give_up_transfer(program);
            if transfer.direction == Direction::Back {
                self.drop_copy(program);
            }
            return false;
        }
        true
    }

    /// Workers with the maximum number of loads.
    pub(crate) fn loading(&self) -> BTreeSet<WorkerId> {
        self.state.memory.offloads().loading()
    }

    fn pays_to_wait(&self, transfer: &Transfer) -> bool {
        let whole = self.load_time(transfer.tokens);
        let passed = self.state.now.since(transfer.since).micros();
        whole.micros().saturating_sub(passed) <= self.prefill_time(transfer.tokens).micros()
    }

    /// Begins to load a placed program's cache from host memory; false if it has to be computed
    /// again.
    pub(super) fn begin_load(&mut self, program: ProgramId) -> bool {
        let place = self.state.live.get(&program).and_then(|p| p.placement);
        let held = self.state.memory.copy_of(program);
        let (Some(place), Some(held)) = (place, held) else {
            return false;
        };
        let (tokens, copy) = (held.tokens, held.copy.clone());
        let worker = self.state.workers.get(&place.worker);
        let is_of_other_weights = worker.is_none_or(|w| w.weights != held.weights);
        let back = self.load_time(tokens);
        if is_of_other_weights || back > self.prefill_time(tokens) {
            self.drop_copy(program);
            return false;
        }
        self.begin_transfer(program, Direction::Back, place.worker, tokens);
        self.command(ProgramCommand::LoadProgram {
            program,
            to: place.worker,
            slot: place.slot,
            tokens,
            copy,
        });
        true
    }

    pub(crate) fn program_offloaded(
        &mut self,
        program: ProgramId,
        copy: &str,
        tokens: u64,
        bytes: u64,
    ) {
        let moving = self.state.memory.transfer_of(program);
        let moving = moving.filter(|t| t.direction == Direction::Out);
        let Some(from) = moving.map(|t| t.worker) else {
            // The offload was cancelled meanwhile: the engine's copy is the valid one.
            let copy = copy.into();
            return self.command(ProgramCommand::DropCopy { program, copy });
        };
        let worker = self.state.workers.get(&from);
        let weights = worker.and_then(|w| w.weights.clone());
        self.end_transfer(program);
        self.state.counters.offloads += 1;
        let since = self.state.now;
        self.pause(program);
        let taken = self.state.memory.offloads().taken_tokens();
        if taken.saturating_add(tokens) > self.config.kv.host_tokens_max {
            // The copy holds more than was requested.
            self.state.counters.copies_lost += 1;
            let copy = copy.into();
            return self.command(ProgramCommand::DropCopy { program, copy });
        }
        let held = HeldCopy {
            copy: copy.into(),
            tokens,
            bytes,
            since,
            weights,
        };
        self.state.memory.offloads_mut().hold(program, held);
    }

    /// The program was to leave: it leaves without a copy.
    pub(crate) fn offload_failed(&mut self, program: ProgramId) {
        let moving = self.state.memory.transfer_of(program);
        if moving.is_some_and(|t| t.direction == Direction::Out) {
            self.end_transfer(program);
            self.state.counters.transfers_failed += 1;
            self.pause(program);
        }
    }

    pub(crate) fn program_loaded(&mut self, program: ProgramId, to: WorkerId) {
        let moving = self.state.memory.transfer_of(program);
        if moving.is_none_or(|t| t.direction != Direction::Back || t.worker != to) {
            return;
        }
        if let Some(ended) = self.end_transfer(program) {
            let now = self.state.now;
            let took = now.since(ended.since);
            self.state.estimates.loaded(now, ended.tokens, took);
        }
        self.state.counters.loads += 1;
        self.note_warm(program);
        self.drop_copy(program);
        self.send_those_that_waited(program);
    }

    /// The cache is computed again; a copy that failed once is not tried again.
    pub(crate) fn load_failed(&mut self, program: ProgramId) {
        let moving = self.state.memory.transfer_of(program);
        if moving.is_some_and(|t| t.direction == Direction::Back) {
            self.end_transfer(program);
            self.state.counters.transfers_failed += 1;
            self.drop_copy(program);
            self.send_those_that_waited(program);
        }
    }

    /// Sends the steps that waited for a cache to its worker.
    fn send_those_that_waited(&mut self, program: ProgramId) {
        if let Some(worker) = self.serving_worker_of(program) {
            self.send_waiting(program, worker);
        }
    }

    pub(crate) fn copy_lost(&mut self, program: ProgramId, copy: &str) {
        let held = self.state.memory.copy_of(program);
        if held.is_none_or(|held| *held.copy != *copy) {
            return;
        }
        self.state.counters.copies_lost += 1;
        if self.state.memory.offloads().is_returning(program) {
            self.command(ProgramCommand::CancelTransfer { program });
            return self.load_failed(program);
        }
        self.state.memory.offloads_mut().release(program);
    }

    /// The transfer executor did not report in time.
    pub(crate) fn transfer_exceeded(&mut self, program: ProgramId) {
        let Some(transfer) = self.state.memory.transfer_of(program).copied() else {
            return;
        };
        if transfer.deadline > self.state.now {
            return;
        }
        self.command(ProgramCommand::CancelTransfer { program });
        match transfer.direction {
            Direction::Out => {
                self.offload_failed(program);
                self.pause_leaving(transfer.worker);
            }
            Direction::Back => self.load_failed(program),
        }
    }

    /// A worker does not export its caches: programs with pending offloads leave without them.
    fn pause_leaving(&mut self, worker: WorkerId) {
        let wanted = self.state.memory.offloads().wanted().iter().copied();
        let here = wanted.filter(|program| {
            let p = self.state.live.get(program);
            p.and_then(|p| p.placement)
                .is_some_and(|place| place.worker == worker)
        });
        for program in here.collect::<Vec<_>>() {
            self.pause(program);
        }
    }

    /// The worker is gone, and all transfers from or to it with it.
    pub(crate) fn end_transfers_of(&mut self, worker: WorkerId) {
        let here = |t: &Transfer| t.worker == worker;
        let moving = self.state.memory.offloads().moving().iter();
        let ended: Vec<ProgramId> = moving.filter(|(_, t)| here(t)).map(|(p, _)| *p).collect();
        for program in ended {
            self.unplace(program);
        }
        self.state.memory.offloads_mut().forget_link(worker);
    }

    /// Ends all transfers, because the transfer executor is gone or there is no host memory any
    /// more. Copies in host memory outlive the executor.
    pub(crate) fn forget_transfers(&mut self) {
        for program in self.state.memory.offloads_mut().withdraw_all() {
            self.account(program);
        }
        let moving = self.state.memory.offloads().moving().keys();
        let moving: Vec<ProgramId> = moving.copied().collect();
        for program in moving {
            if self.state.memory.offloads().is_returning(program) {
                self.unplace(program);
            } else {
                self.give_up_transfer(program);
            }
        }
    }

    /// Ends transfers if their time limit changes or the new settings have no host memory; in the
    /// latter case also drops all copies.
    pub(crate) fn forget_copies(&mut self, new: &crate::CoreConfig) {
        let none_held = new.mode != Mode::ProgramAware || new.kv.host_tokens_max == 0;
        if !none_held && new.kv.transfer_max == self.config.kv.transfer_max {
            return;
        }
        let moving = self.state.memory.migrations().moving().keys();
        let moving: Vec<ProgramId> = moving.copied().collect();
        for program in moving {
            self.give_up_move(program);
            self.ask_again(program);
        }
        self.forget_transfers();
        let held = self.state.memory.offloads().held().keys();
        let held: Vec<ProgramId> = held.copied().collect();
        for program in held.into_iter().filter(|_| none_held) {
            self.drop_copy(program);
        }
    }

    /// True if a program waits for placement.
    pub(crate) fn has_unplaced(&self) -> bool {
        let mut waiting = self.state.waiting.programs();
        waiting.any(|program| self.is_unplaced(program))
    }

    pub(super) fn is_unplaced(&self, program: ProgramId) -> bool {
        let known = self.state.live.get(&program);
        known.is_some_and(|p| p.placement.is_none())
    }
}
