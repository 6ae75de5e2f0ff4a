//! What an engine does with its memory beyond the ledger, while `kv.retention` is on: how much must
//! stay free for caches to survive until they are copied, which lingering caches are evicted before
//! kept ones, and how much prompt waits inside it.

use crate::memory::{Observation, ReuseAt, is_lost};
use crate::programs::program::Program;
use crate::programs::worker::Worker;
use crate::programs::{Programs, StepTokens};
use treadle_model::{ProgramId, StepId, Timestamp, WorkerId};

impl Programs {
    /// Tokens up to which a worker is filled: its low watermark, or a learnt limit.
    pub(crate) fn fill_tokens(&self, worker: &Worker) -> u64 {
        let headroom = worker.ledger.engine().headroom_ppm();
        let headroom = headroom.filter(|_| self.config.kv.retention);
        let filled = headroom.map_or(self.config.low_watermark_ppm, |ppm| 1_000_000 - ppm);
        worker.watermark_tokens(filled.min(self.config.high_watermark_ppm))
    }

    /// Learns from an ended step of a program whose cache was at its worker: if the engine had
    /// evicted it, more must stay free there. `before` is the length of the previous prompt.
    pub(crate) fn learn_headroom(&mut self, worker: WorkerId, cached: u64, before: u64) {
        // Without host memory there is nothing else to do with a cache.
        let kv = &self.config.kv;
        if !kv.retention || kv.host_tokens_max == 0 || before == 0 {
            return;
        }
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        let start = 1_000_000_u32.saturating_sub(self.config.low_watermark_ppm);
        let engine = w.ledger.engine_mut();
        engine.learn_headroom(is_lost(cached, before), start);
    }

    /// Records that a step is sent to a worker. If treadle offloads caches itself, engines find the
    /// caches that it loads, and nothing can be learnt about their own host memory.
    pub(super) fn reuse_sent(&mut self, step: StepId) {
        let known = self.state.steps.get(&step);
        let Some((s, p)) = known.and_then(|s| Some((s, self.state.live.get(&s.program)?))) else {
            return;
        };
        let (program, worker) = (s.program, s.state.worker());
        let job = self.state.estimates.jobs().get(&p.job);
        let whole = job.is_some_and(|job| job.whole_answers).then(|| {
            s.prompt_tokens
                .saturating_sub(self.shared_tokens_of(p, worker))
        });
        if let Some(mut reuse) = worker.and_then(|worker| self.reuse_at(worker)) {
            reuse.sent(program, whole);
        }
    }

    /// Records that the step's prompt is computed.
    pub(crate) fn reuse_computed(&mut self, step: StepId) {
        let known = self.state.steps.get(&step);
        let Some((s, p)) = known.and_then(|s| Some((s, self.state.live.get(&s.program)?))) else {
            return;
        };
        let (program, worker) = (s.program, s.state.worker());
        let own = s
            .prompt_tokens
            .saturating_sub(self.shared_tokens_of(p, worker));
        if let Some(mut reuse) = worker.and_then(|worker| self.reuse_at(worker)) {
            reuse.computed(program, own);
        }
    }

    /// Records that the step has ended; `found` is whether its engine had the cache of the previous
    /// step.
    pub(super) fn reuse_ended(&mut self, step: StepId, tokens: StepTokens, found: Option<bool>) {
        let known = self.state.steps.get(&step);
        let Some((s, p)) = known.and_then(|s| Some((s, self.state.live.get(&s.program)?))) else {
            return;
        };
        let context = tokens.prompt.saturating_add(tokens.output);
        let (program, worker) = (s.program, s.state.worker());
        let own = context.saturating_sub(self.shared_tokens_of(p, worker));
        let wanted = !self.state.waiting.queue().is_empty();
        if let Some(mut reuse) = worker.and_then(|worker| self.reuse_at(worker)) {
            reuse.ended(program, own, Observation { found, wanted });
        }
    }

    /// Records that the step has ended at an engine that does not report cached tokens.
    pub(super) fn reuse_untold(&mut self, step: StepId) {
        let worker = self.state.steps.get(&step).and_then(|s| s.state.worker());
        let w = worker.and_then(|worker| self.state.workers.get_mut(&worker));
        if let Some(w) = w {
            w.ledger.engine_mut().cached_untold();
        }
    }

    /// Tokens of a program's prefix that other programs at a worker share.
    pub(super) fn shared_tokens_of(&self, p: &Program, worker: Option<WorkerId>) -> u64 {
        let Some(w) = worker.and_then(|worker| self.state.workers.get(&worker)) else {
            return p.prefix_tokens();
        };
        let itself = u32::from(p.placement.is_some_and(|place| place.worker == w.id));
        w.ledger.tokens_shared_with_others(&p.prefix, itself)
    }

    fn reuse_at(&mut self, worker: WorkerId) -> Option<ReuseAt<'_>> {
        let learns = self.learns_reuse();
        let w = self.state.workers.get_mut(&worker).filter(|_| learns)?;
        w.ledger.engine_mut().reuse_of(&w.capacity)
    }

    fn learns_reuse(&self) -> bool {
        self.config.kv.retention && self.config.kv.host_tokens_max == 0
    }

    /// Drops what was learnt: the worker's engine is new, or has lost all caches.
    pub(crate) fn forget_reuse(&mut self, worker: WorkerId) {
        let learns = self.learns_reuse();
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.forget_reuse(learns);
        }
    }

    /// Records the cache of a program that leaves a worker whose engine keeps it as long as it can.
    /// Engines with slots give each program its own memory.
    pub(crate) fn linger(&mut self, program: ProgramId, worker: WorkerId) {
        let now = self.state.now;
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let shared = self.shared_tokens_of(p, Some(worker));
        let private = p.context_tokens.saturating_sub(shared);
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        if self.config.kv.retention {
            let engine = w.ledger.engine_mut();
            engine.linger(program, last_use(p, now), private, &w.capacity);
        }
    }

    /// Tokens that must leave a worker, in addition to those above its fill, so that the least
    /// recently used kept cache there is not evicted.
    pub(crate) fn exposed_tokens(&mut self, worker: WorkerId) -> u64 {
        let Some(w) = self.state.workers.get(&worker) else {
            return 0;
        };
        if !w.ledger.engine().has_lingering() {
            return 0;
        }
        let idle = w
            .idle
            .iter()
            .filter(|program| self.state.memory.is_settled(**program));
        let idle = idle.filter_map(|program| self.state.live.get(program));
        let oldest = idle.map(|p| last_use(p, self.state.now)).min();
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return 0;
        };
        w.ledger.engine_mut().exposed_tokens(oldest)
    }

    /// Adds the prompt of a step that is sent to a worker, or will be once its cache is there.
    pub(crate) fn add_prompt(&mut self, step: StepId, worker: WorkerId, cached: u64) {
        let kv = &self.config.kv;
        if !kv.retention || kv.backlog_max.0 == 0 {
            return;
        }
        let now = self.state.now;
        let prompt = self.state.steps.get(&step).map(|s| s.prompt_tokens);
        let tokens = prompt.unwrap_or(0).saturating_sub(cached);
        let w = self.state.workers.get(&worker);
        let speed = w.map_or(0, |w| self.prefill_speed_of(w));
        if let Some(w) = self.state.workers.get_mut(&worker) {
            let engine = w.ledger.engine_mut();
            engine.add_prompt(step, tokens, now, speed);
        }
    }

    /// Adds the prompts of a program's steps that wait for its cache.
    pub(super) fn add_prompts_to_come(&mut self, program: ProgramId, worker: WorkerId) {
        let Some(p) = self.state.live.get(&program) else {
            return;
        };
        let cached = p.context_tokens;
        for step in p.waiting.clone() {
            self.add_prompt(step, worker, cached);
        }
    }

    /// Removes a prompt that is computed, or whose step has left the worker.
    pub(crate) fn end_prompt(&mut self, step: StepId, worker: WorkerId) {
        let program = self.state.steps.get(&step).map(|s| s.program);
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        if let Some(program) = program {
            w.ledger.engine_mut().step_left(program);
        }
        if w.ledger.engine_mut().end_prompt(step) && !self.state.waiting.queue().is_empty() {
            self.state.waiting.want_restore();
        }
    }

    /// Forgets the prompts that must be computed by now.
    pub(crate) fn expire_prompts(&mut self, worker: WorkerId) {
        let now = self.state.now;
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.ledger.engine_mut().expire_prompts(now);
        }
    }

    /// True while a worker has enough prompts to compute. Without host memory a program that waits
    /// outside has no cache that it would lose inside, so the limit is twice as high.
    pub(super) fn is_backlogged(&self, worker: &Worker) -> bool {
        let kv = &self.config.kv;
        let times = if kv.host_tokens_max == 0 { 2 } else { 1 };
        let most_us = u128::from(kv.backlog_max.micros()) * times;
        let most = most_us * u128::from(self.prefill_speed_of(worker));
        u128::from(worker.ledger.engine().prompt_tokens()) * 1_000_000 > most
    }

    /// True while a worker admits no program, though it may have room: it has enough prompts to
    /// compute, or caches are being loaded to it.
    pub(crate) fn is_busy(&self, worker: &Worker) -> bool {
        self.config.kv.retention
            && (self.is_backlogged(worker) || self.loading().contains(&worker.id))
    }

    /// Drops what was learnt under other settings.
    pub(crate) fn forget_headroom(&mut self) {
        let learns = self.learns_reuse();
        for w in self.state.workers.values_mut() {
            w.ledger.engine_mut().forget(learns, &w.capacity);
        }
    }
}

/// When an engine last used a program's cache: at the end of its last step, or when the program was
/// placed there.
fn last_use(p: &Program, now: Timestamp) -> Timestamp {
    if !p.is_between_steps() {
        return now;
    }
    let came = p.placement.map(|place| place.since).unwrap_or_default();
    p.phase_since.max(came)
}
