//! Roles of workers: a step at a decode worker has its prompt computed by a prefill worker first, if
//! that costs less time than computing it beside the answers that the decode worker generates.
//!
//! A program is placed, and charged, at its decode worker only. What a prefill worker keeps of its
//! prompts is a cache that may be gone.

use crate::Programs;
use crate::programs::explain::{Because, DecisionKind};
use crate::programs::program::{Prefilled, Program};
use crate::programs::scheduling::explanation::Explanation;
use crate::programs::step::{Prefill, PrefillLeg, Step, StepState};
use crate::programs::worker::{Worker, WorkerRole};
use treadle_model::{EngineKind, ProgramId, Span, StepId, WorkerId};

/// A prefill worker may take this many times the expected time.
const PATIENCE: u64 = 4;
/// In addition to this: the estimate may be wrong, and short prompts take a fixed time.
const PATIENCE_LEAST: Span = Span::from_secs(10);

/// A way to have a prompt computed elsewhere.
#[derive(Clone, Copy, Debug)]
struct Way {
    worker: WorkerId,
    /// Tokens that are not in its cache.
    tokens: u64,
    /// Tokens that the decode worker fetches.
    moved_tokens: u64,
    /// Until the prompt is at the decode worker.
    takes: Span,
    /// It failed the step before.
    has_failed: bool,
}

impl Programs {
    /// Has a step's prompt computed elsewhere before `worker` gets it, if that costs less.
    pub(super) fn begin_prefill(&mut self, step: StepId, worker: WorkerId) -> Option<Prefill> {
        let w = self.state.workers.get(&worker)?;
        if w.role != WorkerRole::Decode {
            return None;
        }
        self.expire_prefills();
        let way = self.way_of_prompt(step, worker)?;
        let (now, at) = (self.state.now, way.worker);
        let speed = self.prefill_speed_of(self.state.workers.get(&at)?);
        let within = way.takes.micros().saturating_mul(PATIENCE);
        let within = Span(within.saturating_add(PATIENCE_LEAST.micros()));
        let s = self.state.steps.get_mut(&step)?;
        s.prefill = Some(PrefillLeg {
            worker: at,
            moved_tokens: way.moved_tokens,
            within,
            done_at: None,
            cached_tokens: 0,
        });
        let program = s.program;
        let elsewhere = self.state.workers.get_mut(&at)?;
        elsewhere.prefills += 1;
        let engine = elsewhere.ledger.engine_mut();
        engine.add_prompt(step, way.tokens, now, speed);
        self.state.counters.prefills += 1;
        let explanation = Explanation::new(DecisionKind::Prefill, Because::LongPrompt);
        self.explain(program, at, &explanation);
        Some(Prefill { worker: at, within })
    }

    /// Forgets the prompts that prefill workers must have computed by now.
    fn expire_prefills(&mut self) {
        let workers = self.state.workers.values();
        let busy = workers.filter(|w| w.prefills > 0).map(|w| w.id);
        for worker in busy.collect::<Vec<_>>() {
            self.expire_prompts(worker);
        }
    }

    /// The quickest way to have a step's prompt computed elsewhere, if that costs less than at its
    /// own worker, or if that can't do it. A step that a prefill worker failed, or that has a part
    /// of its answer, has its prompt computed by its own worker.
    fn way_of_prompt(&self, step: StepId, worker: WorkerId) -> Option<Way> {
        let s = self.state.steps.get(&step)?;
        let p = self.state.live.get(&s.program)?;
        let own = self.state.workers.get(&worker)?;
        let may_choose = !own.needs_prefill();
        if may_choose && (s.prefill_failed.is_some() || s.first_token_at.is_some()) {
            return None;
        }
        let uncached = s.prompt_tokens.saturating_sub(self.cached_at(own, p));
        let elsewhere = self.state.workers.values();
        let elsewhere = elsewhere.filter(|w| self.may_prefill(w, own, s, p));
        let ways = elsewhere.map(|w| self.way(w, s, p, uncached));
        let best = ways.min_by_key(|way| (way.has_failed, way.takes, way.worker))?;
        let cost = self.cost_beside_steps(own, uncached);
        let pays = cost.is_some_and(|cost| best.takes < cost);
        (pays || !may_choose).then_some(best)
    }

    /// Whether one worker may compute a step's prompt for another: both have the same software and
    /// weights, and can hand caches over.
    fn may_prefill(&self, w: &Worker, own: &Worker, s: &Step, p: &Program) -> bool {
        let hand_over = matches!(own.engine, EngineKind::Vllm | EngineKind::Sglang);
        let is_alike = w.engine == own.engine && w.model == own.model && w.weights == own.weights;
        w.takes_prefills()
            && hand_over
            && is_alike
            && !w.is_busy(self.state.now)
            && self.serves_program(w, p)
            && s.prompt_tokens < w.context_tokens_max()
    }

    fn way(&self, w: &Worker, s: &Step, p: &Program, uncached: u64) -> Way {
        let lingering = p.prefilled.filter(|last| last.worker == w.id);
        let lingering = lingering.map_or(0, |last| lingering_tokens(w, last));
        let tokens = s.prompt_tokens.saturating_sub(lingering);
        let waiting = w.ledger.engine().prompt_tokens();
        let computes = self.prefill_time_at(w, tokens.saturating_add(waiting));
        let answers = Span(self.token_ns(w, 0).unwrap_or(0) / 1_000);
        let moves = self.state.estimates.handover_time(self.state.now, uncached);
        let takes = [answers, moves]
            .iter()
            .fold(computes.0, |sum, part| sum.saturating_add(part.0));
        Way {
            worker: w.id,
            tokens,
            moved_tokens: uncached,
            takes: Span(takes),
            has_failed: s.prefill_failed == Some(w.id),
        }
    }

    /// What it costs to compute a prompt beside the running steps of a worker: the time until it is
    /// computed, and the time by which it delays each of those. A prompt that fits into one pass
    /// beside their tokens delays none. `None` before its speeds are known.
    fn cost_beside_steps(&self, own: &Worker, uncached: u64) -> Option<Span> {
        self.state.prefill_speed_of(own)?;
        let waiting = own.ledger.engine().prompt_tokens();
        let computes = self.prefill_time_at(own, uncached.saturating_add(waiting));
        let running = own.running_steps;
        let pass = Span(self.token_ns(own, running)? / 1_000);
        let delays = self.prefill_time_at(own, uncached).0.saturating_sub(pass.0);
        let delays = delays.saturating_mul(u64::from(running));
        Some(Span(computes.0.saturating_add(delays)))
    }

    /// Tokens of a program's prompt that are in its worker's cache: its own, or those that it shares.
    fn cached_at(&self, own: &Worker, p: &Program) -> u64 {
        let shared = self.shared_tokens_of(p, Some(own.id));
        shared.max(self.warm_tokens(p.id))
    }

    /// Records that a prefill worker has computed a step's prompt.
    pub(crate) fn step_prefilled(&mut self, step: StepId, prompt: u64, cached: Option<u64>) {
        let now = self.state.now;
        let Some(s) = self.state.steps.get_mut(&step) else {
            return;
        };
        let StepState::Running { since, .. } = s.state else {
            return;
        };
        let prompt = if prompt == 0 { s.prompt_tokens } else { prompt };
        let program = s.program;
        let Some(leg) = s.prefill.as_mut().filter(|leg| leg.done_at.is_none()) else {
            return;
        };
        leg.done_at = Some(now);
        leg.cached_tokens = cached.unwrap_or(0).min(prompt);
        let (worker, computed) = (leg.worker, prompt - leg.cached_tokens);
        self.leaves_prefill(step, worker);
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        w.prefilled_tokens = w.prefilled_tokens.saturating_add(computed);
        let by = w.prefilled_tokens;
        // Without a count it is unknown what was computed.
        let is_told = cached.is_some() && w.speeds.prompt_computed(computed, now.since(since));
        self.note_prefilled(program, worker, prompt, by);
        if is_told {
            self.compare_speeds();
        }
    }

    fn note_prefilled(&mut self, program: ProgramId, worker: WorkerId, tokens: u64, by: u64) {
        if let Some(p) = self.state.live.get_mut(&program) {
            p.prefilled = Some(Prefilled { worker, tokens, by });
        }
    }

    /// Handles a prompt that its prefill worker failed: the step's own worker computes it.
    pub(crate) fn step_prefill_failed(&mut self, step: StepId) {
        let s = self.state.steps.get(&step);
        let Some(s) = s.filter(|s| s.prefill.is_some_and(|leg| leg.done_at.is_none())) else {
            return;
        };
        let (program, own) = (s.program, s.state.worker());
        self.blame_prefill(step);
        self.end_prefill(step);
        self.state.counters.prefills_failed += 1;
        if let Some(own) = own {
            self.add_prompt(step, own, self.warm_tokens(program));
        }
    }

    /// Whether a step failed because of its prefill worker, without which its own one can't do.
    pub(crate) fn is_failed_by_prefill(&self, s: &Step) -> bool {
        let own = s.state.worker();
        let own = own.and_then(|own| self.state.workers.get(&own));
        if !own.is_some_and(Worker::needs_prefill) {
            return false;
        }
        match s.prefill_to_come() {
            Some(to_come) => {
                let w = self.state.workers.get(&to_come.worker);
                !w.is_some_and(Worker::is_healthy)
            }
            None => s.prefill.is_none() && s.prefill_failed.is_some(),
        }
    }

    /// Notes the prefill worker of a failed attempt.
    pub(crate) fn blame_prefill(&mut self, step: StepId) {
        if let Some(s) = self.state.steps.get_mut(&step) {
            let worker = s.prefill.map(|leg| leg.worker);
            s.prefill_failed = worker.or(s.prefill_failed);
        }
    }

    /// Ends the part of a prefill worker in a step that leaves its worker.
    pub(crate) fn end_prefill(&mut self, step: StepId) {
        let s = self.state.steps.get_mut(&step);
        let leg = s.and_then(|s| s.prefill.take());
        if let Some(leg) = leg.filter(|leg| leg.done_at.is_none()) {
            self.leaves_prefill(step, leg.worker);
        }
    }

    fn leaves_prefill(&mut self, step: StepId, worker: WorkerId) {
        if let Some(w) = self.state.workers.get_mut(&worker) {
            w.prefills = w.prefills.saturating_sub(1);
            w.ledger.engine_mut().end_prompt(step);
        }
    }

    /// Learns how long it took from the end of a prompt at its prefill worker to the first token.
    /// `SGLang` does both at once, which shows nothing.
    pub(crate) fn learn_handover(&mut self, step: StepId) {
        let now = self.state.now;
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let own = s
            .state
            .worker()
            .and_then(|own| self.state.workers.get(&own));
        let is_in_turn = own.is_some_and(|own| !own.needs_prefill());
        let leg = s.prefill.filter(|_| is_in_turn);
        if let Some((leg, done_at)) = leg.and_then(|leg| Some((leg, leg.done_at?))) {
            let took = now.since(done_at);
            let estimates = &mut self.state.estimates;
            estimates.handed_over(now, leg.moved_tokens, took);
        }
    }

    /// Tokens of a finished step's prompt that nobody computed for it: its own worker counts those
    /// that came from a prefill worker as cached.
    pub(crate) fn cached_anywhere(&self, step: StepId, cached: Option<u64>) -> Option<u64> {
        let Some(s) = self.state.steps.get(&step) else {
            return cached;
        };
        let own = s
            .state
            .worker()
            .and_then(|own| self.state.workers.get(&own));
        // `SGLang` reports what its prefill worker had.
        let counts_fetched = own.is_some_and(|own| !own.needs_prefill());
        let leg = s
            .prefill
            .filter(|leg| counts_fetched && leg.done_at.is_some());
        match leg {
            Some(leg) => cached.map(|cached| cached.min(leg.cached_tokens)),
            None => cached,
        }
    }

    /// Sets a worker's role. Programs leave one that only computes prompts from now on, as they
    /// leave one that is drained.
    pub(crate) fn worker_role_set(
        &mut self,
        worker: WorkerId,
        role: WorkerRole,
        bootstrap_port: Option<u16>,
    ) {
        let Some(w) = self.state.workers.get_mut(&worker) else {
            return;
        };
        // Who sets a role need not know the port that the engine reported with it.
        let reported = w.bootstrap_port.filter(|_| w.role == role);
        w.bootstrap_port = bootstrap_port.or(reported);
        let before = std::mem::replace(&mut w.role, role);
        if before == role {
            return;
        }
        let holds_programs = w.holds_programs();
        self.state.waiting.want_restore();
        if holds_programs {
            self.due.serve.insert(worker);
            self.due.resumed.insert(worker);
        } else {
            self.state.waiting.unreserve(worker);
            self.end_moves_to(worker);
        }
        self.refuse_waiting_too_long();
    }
}

/// What of a program's last prompt there is still in a prefill worker's cache: everything, until
/// that has computed as much of others as it holds. Nothing, if it is unknown how much it holds.
fn lingering_tokens(w: &Worker, last: Prefilled) -> u64 {
    let since = w.prefilled_tokens.saturating_sub(last.by);
    let holds = w.capacity.tokens.unwrap_or(0);
    if since.saturating_add(last.tokens) <= holds {
        last.tokens
    } else {
        0
    }
}
