//! Engines' memory beyond the ledger, while `kv.retention` is on: up to which level a worker is
//! filled, and whether it is busy with prompts and caches. It is computed from engines' reports and
//! from what was sent to them ([memory pressure] has the rules).
//!
//! [memory pressure]: ../../../../docs/internals/eviction.md

use super::super::outcome::{Checked, broken};
use super::Model;
use super::caches::Way;
use super::facts::{At, WorkerFacts};
use std::collections::BTreeMap;
use treadle_core::{Core, StepTokens};
use treadle_model::{ProgramId, Span, StepId, Timestamp, WorkerId};

/// Share of a worker, in millionths, that stays free: what a lost cache adds, what a found one
/// takes away, and the most.
const LOST_PPM: u32 = 4_000;
const FOUND_PPM: u32 = 40;
const FREE_PPM_MAX: u32 = 200_000;
/// A cache counts as lost if more than a tenth of it and this many tokens are missing.
const MISSING_TOKENS: u64 = 64;
/// Tokens to compute from which a prompt shows an engine's speed, and how many such prompts do.
const SHOWING_TOKENS: u64 = 1_024;
const SHOWING_PROMPTS: u32 = 8;
/// Prompts that show whether a worker that was lost is as fast as before.
const DOUBTED_PROMPTS: u32 = 64;
/// Maximum number of caches in transfer to one worker.
const LOADS_MAX: usize = 16;

/// A prompt that was sent to an engine, or will be once its cache is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prompt {
    tokens: u64,
    /// When the engine has computed it, at its speed and after all that came before.
    done_at: Timestamp,
}

/// What is known of the prompts at one engine.
pub(super) type Prompts = BTreeMap<StepId, Prompt>;

impl Model {
    /// The same with what the engine found of the prompt: nothing, where the count is left out for a
    /// program that was given one before.
    pub(super) fn with_cached(&mut self, program: ProgramId, mut tokens: StepTokens) -> StepTokens {
        if let Some(p) = self
            .programs
            .get_mut(&program)
            .filter(|_| tokens.prompt > 0)
        {
            p.was_told |= tokens.cached.is_some();
            tokens.cached = tokens.cached.or(p.was_told.then_some(0));
        }
        tokens
    }

    /// A step has ended: more must stay free at its program's worker if that has lost its cache.
    pub(super) fn cache_was_found(&mut self, program: ProgramId, tokens: StepTokens) {
        let kv = &self.config.kv;
        let start = 1_000_000 - self.config.low_watermark_ppm.min(1_000_000);
        let (Some(p), Some(cached)) = (self.programs.get(&program), tokens.cached) else {
            return;
        };
        // The answer may have lost its reasoning; a shorter prompt than before was rewritten.
        let before = p.context_tokens.saturating_sub(p.last_output_tokens);
        let comparable = p.is_warm && before > 0 && tokens.prompt >= before;
        let (true, Some(worker)) = (kv.host_tokens_max > 0 && comparable, p.place) else {
            return;
        };
        let missing = before.saturating_sub(cached);
        if let Some(w) = self.workers.get_mut(&worker) {
            let free = w.free_ppm.unwrap_or(start);
            w.free_ppm = Some(if missing > before / 10 + MISSING_TOKENS {
                (free + LOST_PPM).min(start.max(FREE_PPM_MAX))
            } else {
                free.saturating_sub(FOUND_PPM)
            });
        }
    }

    /// Tokens up to which a worker is filled.
    pub(super) fn fill_of(&self, w: &WorkerFacts) -> u64 {
        let (low, high) = (
            self.config.low_watermark_ppm,
            self.config.high_watermark_ppm,
        );
        let free = w.free_ppm.filter(|_| self.config.kv.retention);
        w.watermark(free.map_or(low, |free| 1_000_000 - free).min(high))
    }

    /// A worker's speed of computing prompts in tokens per second: its own, that of others, or the
    /// setting.
    pub(super) fn prefill_speed(&self, worker: Option<WorkerId>) -> u64 {
        let own = worker.and_then(|id| self.workers.get(&id)?.speed.known());
        own.or_else(|| self.speed_of_others(worker?))
            .or(self.median_speed)
            .unwrap_or(self.config.kv.prefill_tokens_per_s)
    }

    /// The median of workers with the same software and memory.
    fn speed_of_others(&self, worker: WorkerId) -> Option<u64> {
        let class = |w: &WorkerFacts| (w.kind, w.capacity.gpus, w.capacity.tokens);
        let own = class(self.workers.get(&worker)?);
        let others = self.workers.values().filter(|w| class(w) == own);
        median(others.filter_map(|w| w.speed.known()).collect())
    }

    /// A prompt of which an engine has counted what it found: a faster one takes the engine's speed
    /// half of the way up, each other one a little down.
    pub(super) fn prompt_was_computed(&mut self, step: StepId, tokens: StepTokens) {
        let (Some(s), Some(cached)) = (self.steps.get(&step), tokens.cached) else {
            return;
        };
        let (At::Worker(worker, _), true) = (s.at, s.began) else {
            return;
        };
        let prompt = if tokens.prompt > 0 {
            tokens.prompt
        } else {
            s.prompt_tokens
        };
        let (computed, took) = (prompt.saturating_sub(cached), s.began_at.since(s.sent_at));
        let Some(w) = self.workers.get_mut(&worker) else {
            return;
        };
        if computed < SHOWING_TOKENS || took.0 == 0 {
            return;
        }
        w.speed.shown(computed * 1_000_000 / took.0);
        let speeds = self.workers.values().filter_map(|w| w.speed.known());
        self.median_speed = median(speeds.collect()).or(self.median_speed);
    }

    /// A step is sent to a worker, or will be.
    pub(super) fn prompt_sent(&mut self, step: StepId, worker: WorkerId, cached: u64) {
        let (now, kv) = (self.now, &self.config.kv);
        let speed = u128::from(self.prefill_speed(Some(worker)));
        let (Some(s), Some(w)) = (self.steps.get(&step), self.workers.get_mut(&worker)) else {
            return;
        };
        if !kv.retention || kv.backlog_max.0 == 0 || speed == 0 {
            return;
        }
        w.prompts.retain(|_, prompt| prompt.done_at > now);
        let tokens = s.prompt_tokens.saturating_sub(cached);
        let last = w.prompts.values().map(|prompt| prompt.done_at).max();
        let takes_us = u128::from(tokens) * 1_000_000 / speed;
        let done_at = last.unwrap_or(now) + Span(takes_us as u64);
        w.prompts.insert(step, Prompt { tokens, done_at });
    }

    /// A waiting program is placed: its prompts will be sent, at most as a whole.
    pub(super) fn prompts_are_decided(&mut self, program: ProgramId, worker: WorkerId) {
        let steps = self.programs[&program].steps.iter();
        let steps = steps.map(|step| &self.steps[step]);
        let waiting = steps.filter(|s| !matches!(s.at, At::Worker(..)));
        let tokens: u64 = waiting.map(|s| s.prompt_tokens).sum();
        *self.decided_prompts.entry(worker).or_default() += tokens;
    }

    /// What an engine is sent of a step's program that it has already.
    pub(super) fn cached_tokens(&self, step: StepId) -> u64 {
        let s = self.steps.get(&step);
        let p = s.and_then(|s| self.programs.get(&s.program));
        p.filter(|p| p.is_warm).map_or(0, |p| p.context_tokens)
    }

    /// The steps of a program that wait for its cache will be sent after it, in the order in which
    /// they began to wait.
    pub(super) fn prompts_will_follow(&mut self, program: ProgramId, worker: WorkerId) {
        let Some(p) = self.programs.get(&program) else {
            return;
        };
        let cached = p.context_tokens;
        let waiting = p.steps.iter().map(|id| (self.steps[id].queued_as, *id));
        let mut waiting: Vec<_> = waiting
            .filter(|(_, id)| self.steps[id].at == At::Queue)
            .collect();
        waiting.sort_unstable();
        for (_, step) in waiting {
            self.prompt_sent(step, worker, cached);
        }
    }

    /// A prompt has been computed, or no longer needs to be.
    pub(super) fn prompt_ends(&mut self, step: StepId) {
        for w in self.workers.values_mut() {
            w.prompts.remove(&step);
        }
    }

    /// A program has no placement any more: what waits of it is not sent there.
    pub(super) fn prompts_stay_away(&mut self, program: ProgramId) {
        let Some(p) = self.programs.get(&program) else {
            return;
        };
        let waits = |id: &StepId| !matches!(self.steps.get(id).map(|s| s.at), Some(At::Worker(..)));
        let waiting: Vec<StepId> = p.steps.iter().copied().filter(waits).collect();
        for step in waiting {
            self.prompt_ends(step);
        }
    }

    /// The periodic check looks which prompts must be computed by now.
    pub(super) fn pass_tick(&mut self) {
        if self.tick_at.is_some_and(|at| at <= self.now) {
            self.tick_at = None;
            let now = self.now;
            for w in self.workers.values_mut().filter(|w| w.healthy) {
                w.prompts.retain(|_, prompt| prompt.done_at > now);
            }
        }
    }

    /// Schedules the periodic check while there is something to check.
    fn settle_tick(&mut self) {
        let placed = self.programs.values().any(|p| p.place.is_some());
        let waiting = self.steps.values().any(|s| s.at == At::Queue);
        let needed = self.is_aware() && (placed || waiting || !self.caches.is_empty());
        if needed && self.tick_at.is_none() {
            self.tick_at = Some(self.now + self.config.tick);
        }
    }

    /// True while a worker admits no program, though it may have room: it has prompts to compute,
    /// or caches are on their way to it. Without host memory nothing is lost by waiting inside.
    pub(super) fn is_busy(&self, worker: WorkerId) -> bool {
        let kv = &self.config.kv;
        let Some(w) = self.workers.get(&worker).filter(|_| kv.retention) else {
            return false;
        };
        let times = if kv.host_tokens_max == 0 { 2 } else { 1 };
        let sent: u64 = w.prompts.values().map(|prompt| prompt.tokens).sum();
        let tokens = sent + self.decided_prompts.get(&worker).copied().unwrap_or(0);
        let takes = u128::from(tokens) * 1_000_000;
        let speed = u128::from(self.prefill_speed(Some(worker)));
        let most = u128::from(kv.backlog_max.0) * speed * times;
        let loads = self.caches.under_way.values();
        let loads = loads.filter(|u| u.way == Way::Back(worker)).count();
        takes > most || loads >= LOADS_MAX
    }

    /// The core fills workers as far, and takes the same ones to be busy.
    pub(super) fn compare_fills(&mut self, core: &Core) -> Checked {
        self.settle_tick();
        if !self.config.kv.retention {
            return Ok(());
        }
        for (id, known) in &core.programs().workers {
            let own = (self.fill_of(&self.workers[id]), self.is_busy(*id));
            let (fill, busy) = (core.fill_tokens(known), core.is_busy(known));
            if own != (fill, busy) {
                return broken(
                    "fill",
                    format!(
                        "{id} is to be filled up to, and is busy: {own:?}, the core says {:?}: {:?}",
                        (fill, busy),
                        self.workers[id].prompts
                    ),
                );
            }
        }
        Ok(())
    }
}

/// The median; the lower one of the middle two for an even number.
fn median(mut speeds: Vec<u64>) -> Option<u64> {
    speeds.sort_unstable();
    speeds.get(speeds.len().saturating_sub(1) / 2).copied()
}

/// A worker's measured speed of computing prompts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PromptSpeed {
    tokens_per_s: u64,
    prompts: u32,
    /// Prompts until what was known before it was lost counts as what was shown.
    doubted: u32,
}

impl PromptSpeed {
    /// Prompt tokens in a second, once enough prompts have shown it.
    fn known(&self) -> Option<u64> {
        (self.prompts >= SHOWING_PROMPTS).then_some(self.tokens_per_s.max(1))
    }

    fn shown(&mut self, shown: u64) {
        let part = if self.doubted > 0 { 32 } else { 4_096 };
        let known = self.tokens_per_s;
        self.tokens_per_s = if shown > known {
            shown - (shown - known) / 2
        } else {
            known - known / part
        };
        self.prompts += 1;
        self.doubted = self.doubted.saturating_sub(1);
    }

    /// What remains of the measurement after the worker was lost.
    pub(super) fn remembered(self) -> Self {
        let Some(tokens_per_s) = self.known() else {
            return Self::default();
        };
        Self {
            tokens_per_s,
            prompts: SHOWING_PROMPTS,
            doubted: DOUBTED_PROMPTS,
        }
    }
}
