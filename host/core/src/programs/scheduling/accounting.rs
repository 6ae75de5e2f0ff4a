//! Accounting: whenever a program's charge, placement or phase has changed, the use until then is
//! added to the accounts (`ThunderAgent` §4.2).

use crate::memory::{Charge, Charges, Prefill, Share, Use, is_lost};
use crate::programs::StepTokens;
use crate::programs::program::Program;
use crate::programs::step::{Step, StepState};
use crate::programs::worker::Books;
use crate::{Mode, Programs};
use treadle_model::{ProgramId, StepId, WorkerId};

/// Minimum private context, in tokens, for a step to show how much an engine keeps.
const TELLING_TOKENS: u64 = 1_024;

impl Programs {
    /// Updates the accounts after a change of the program's placement or its use.
    pub(crate) fn account(&mut self, program: ProgramId) {
        if let Some(p) = self.state.live.get(&program) {
            let place = p.placement.map(|place| Charge {
                worker: place.worker,
                what: self.use_of(p),
                tokens: place.charged_tokens,
            });
            self.record_charges(program, place, self.kept_charge(program));
        }
    }

    /// Updates the accounts after a change of only the program's charge.
    pub(super) fn account_charge(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let (Some(place), Some(booked)) = (p.placement, p.meter.placement()) else {
            return self.account(program);
        };
        let tokens = place.charged_tokens;
        let charge = Charge { tokens, ..booked };
        self.record_charges(program, Some(charge), p.meter.kept());
    }

    /// Updates a worker's account after a change of its capacity or health.
    pub(crate) fn account_worker(&mut self, worker: WorkerId) {
        let (now, has_ledger) = (self.state.now, self.has_ledger());
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.balance(has_ledger, now);
        }
    }

    /// Updates all accounts, after a change of the mode or on a state from before there were
    /// accounts.
    pub(crate) fn account_all(&mut self) {
        let programs: Vec<ProgramId> = self.state.live.keys().copied().collect();
        for program in programs {
            self.account(program);
        }
        let workers: Vec<WorkerId> = self.state.workers.keys().copied().collect();
        for worker in workers {
            self.account_worker(worker);
        }
    }

    /// In the mode that sends steps to the worker with the fewest running, no program is charged,
    /// so unused memory is unknown.
    fn has_ledger(&self) -> bool {
        self.config.mode != Mode::LeastLoad
    }

    /// The present use of a program's placement.
    pub(crate) fn use_of(&self, p: &Program) -> Use {
        let answers = |step: &StepId| {
            let s = self.state.steps.get(step);
            s.is_some_and(|s| s.first_token_at.is_some())
        };
        if !p.running.is_empty() {
            return if p.running.iter().any(answers) {
                Use::Decode
            } else {
                Use::Prefill
            };
        }
        if self.state.memory.is_at_rest(p.id) {
            Use::Caching
        } else {
            Use::Transfer
        }
    }

    /// Room reserved for a program whose cache is being moved.
    pub(crate) fn kept_charge(&self, program: ProgramId) -> Option<Charge> {
        let to = self.state.memory.move_of(program)?.to;
        let room = self.state.workers.get(&to)?.ledger.kept().get(&program)?;
        Some(Charge {
            worker: to,
            what: Use::Transfer,
            tokens: room.tokens,
        })
    }

    /// Writes a program's charges into the accounts of its workers and its job.
    fn record_charges(&mut self, program: ProgramId, place: Option<Charge>, kept: Option<Charge>) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        if p.meter.placement() == place && p.meter.kept() == kept {
            return;
        }
        if p.meter.leaves(place) {
            self.divide_by_guess(program);
        }
        let (now, has_ledger) = (self.state.now, self.has_ledger());
        let charges = Charges {
            placement: place,
            kept,
        };
        let state = &mut self.state;
        if let Some(p) = state.live.get_mut(&program) {
            let mut books = Books {
                workers: &mut state.workers,
                has_ledger,
            };
            let memory = &mut state.memory;
            memory.book(&mut p.meter, &p.job, &charges, &mut books, now);
        }
    }

    /// Records that the program's cache is on its worker.
    pub(super) fn note_warm(&mut self, program: ProgramId) {
        if let Some(p) = self.state.live.get_mut(&program) {
            p.meter.set_warm(p.placement.is_some());
        }
    }

    /// Cached tokens of a step's prompt. vLLM versions leave the count out if it is 0, so it is 0
    /// if the program got a count before. Other programs may use endpoints that never report one.
    pub(crate) fn cached_told(&mut self, program: ProgramId, tokens: StepTokens) -> Option<u64> {
        let live = self.state.live.get_mut(&program);
        let Some(p) = live.filter(|_| tokens.prompt > 0) else {
            return tokens.cached;
        };
        p.was_told_cached |= tokens.cached.is_some();
        tokens.cached.or(p.was_told_cached.then_some(0))
    }

    /// Divides the time before a step's first token, once the step has ended and its counts are
    /// known. Without a count of cached tokens, a program that kept its cache is assumed to have
    /// found it, and any other to have found nothing.
    pub(crate) fn divide(&mut self, step: StepId, tokens: StepTokens) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let Some(p) = self.state.live.get(&s.program) else {
            return;
        };
        let before = p.context_tokens.min(tokens.prompt);
        let assumed = if p.meter.is_warm() { before } else { 0 };
        let cached = tokens.cached.unwrap_or(assumed).min(tokens.prompt);
        let computed = tokens.prompt - cached;
        let timing = self.timing(s, computed);
        let (program, again) = (s.program, before.saturating_sub(cached));
        // Templates and agents leave the reasoning out of an answer. A prompt that does not contain
        // the previous one has been rewritten, and says nothing about caches.
        let prompt_before = p.context_tokens.saturating_sub(p.last_output_tokens);
        let keeps_history = tokens.prompt >= prompt_before;
        // What came from a prefill worker, or was waited for there in vain, says nothing about this
        // one's cache and speed.
        let is_own = s.prefill.is_none() && s.prefill_failed.is_none();
        let place = p
            .placement
            .filter(|_| p.meter.is_warm() && tokens.cached.is_some() && keeps_history && is_own);
        // Tokens shared with others are found in any case.
        let shared = self.shared_tokens_of(p, s.state.worker());
        let own_before = prompt_before.saturating_sub(shared);
        let would_tell = keeps_history && is_own && own_before >= TELLING_TOKENS;
        let tells = tokens.cached.is_some() && would_tell;
        let missing = prompt_before.saturating_sub(cached);
        let found = tells.then(|| !is_lost(own_before.saturating_sub(missing), own_before));
        if let Some(place) = place {
            self.learn_headroom(place.worker, cached, prompt_before);
        }
        self.reuse_ended(step, tokens, found);
        if would_tell && tokens.cached.is_none() {
            self.reuse_untold(step);
        }
        let counted = tokens.cached.filter(|_| is_own).map(|_| computed);
        if counted.is_some() {
            self.learn_prefill_speed(step, computed);
        }
        self.learn_pace(step, tokens.output, counted);
        let prefill = Prefill {
            computed,
            again,
            timing,
        };
        self.divide_into(program, &prefill);
        self.note_warm(program);
    }

    /// How much of a step's time before its first token was spent on its prompt: all of it, unless
    /// the answer came in one piece.
    fn timing(&self, s: &Step, computed: u64) -> Share {
        let (None, StepState::Running { since, .. }) = (s.first_token_at, s.state) else {
            return Share::ALL;
        };
        let elapsed = self.state.now.since(since).micros();
        match self.prefill_time(computed).micros() {
            0 if computed > 0 => Share::ALL,
            part => Share {
                part,
                whole: elapsed,
            },
        }
    }

    /// Divides that time without counts.
    pub(crate) fn divide_by_guess(&mut self, program: ProgramId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let prefill = Prefill {
            computed: p.demand_tokens.max(p.context_tokens),
            again: if p.meter.is_warm() {
                0
            } else {
                p.context_tokens
            },
            timing: Share::ALL,
        };
        self.divide_into(program, &prefill);
    }

    fn divide_into(&mut self, program: ProgramId, prefill: &Prefill) {
        let (now, has_ledger) = (self.state.now, self.has_ledger());
        let state = &mut self.state;
        if let Some(p) = state.live.get_mut(&program) {
            let mut books = Books {
                workers: &mut state.workers,
                has_ledger,
            };
            let memory = &mut state.memory;
            memory.divide(&mut p.meter, &p.job, prefill, &mut books, now);
        }
    }
}
