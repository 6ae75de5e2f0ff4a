//! Expected costs of a program's cache: idle time while its tool runs, and loading, moving or
//! recomputing it.

use crate::Programs;
use crate::estimates::{NEVER, RanStep, RemainingTime, prefill_time};
use crate::programs::action::{Action, SUBAGENT};
use crate::programs::program::Program;
use crate::programs::question::CostEstimates;
use crate::programs::step::StepState;
use crate::programs::worker::Worker;
use treadle_model::{Phase, Span, StepId};

impl Programs {
    /// The expected remaining time of a program's tool call.
    pub(super) fn remaining_tool_time(&self, p: &Program) -> RemainingTime {
        let now = self.state.now;
        let estimates = &self.state.estimates;
        // All running actions, and all programs that it waits for, must end before the next step.
        let of_others = p.waits_for_others().map(|since| (SUBAGENT, since));
        // For treadle's own actions with a known end, that end is used.
        let is_open = |action: &&Action| action.ends.is_none_or(|ends| ends <= now);
        let actions = p
            .actions
            .values()
            .filter(is_open)
            .map(|a| (&*a.tool, a.since));
        let ends = p.actions.values().filter_map(|action| action.ends);
        let expected = ends.filter(|ends| *ends > now).map(|ends| ends.since(now));
        let expected = expected.map(RemainingTime::expected);
        let of_actions = actions.chain(of_others).filter_map(|(tool, since)| {
            estimates.rest_of_call(&p.job, tool, now.since(since), since.since(now))
        });
        if let Some(remaining_tool_time) = of_actions.chain(expected).reduce(RemainingTime::later) {
            return remaining_tool_time;
        }
        // Without statistics of its tools; treadle's own actions may still have to wait.
        let waits = p.actions.values().map(|action| action.since.since(now));
        let wait = waits.max().unwrap_or_default();
        let elapsed = match wait {
            Span(0) => now.since(p.phase_since),
            _ => Span(0),
        };
        estimates.rest_of_gap(&p.job, elapsed, wait)
    }

    /// Adds a program's cost estimates to the columns of a question.
    pub(super) fn foresee(&self, p: &Program, costs: &mut CostEstimates) {
        let acts = p.phase == Phase::Acting && p.is_between_steps();
        let none = RemainingTime {
            mean: Span(0),
            soonest: Span(0),
            price: Span(0),
        };
        let remaining_tool_time = if acts {
            self.remaining_tool_time(p)
        } else {
            none
        };
        let tokens = p.context_tokens;
        let kv = &self.config.kv;
        let back = if kv.host_tokens_max == 0 {
            NEVER
        } else {
            self.load_time(tokens)
        };
        costs.idle.push(remaining_tool_time.mean);
        costs.soonest.push(remaining_tool_time.soonest);
        costs.price.push(remaining_tool_time.price);
        costs.back.push(back);
        costs.moved.push(self.move_time_of(p));
        costs.prefill.push(self.prefill_time(tokens));
        let remaining = p.remaining_tokens.and_then(|t| i64::try_from(t).ok());
        costs.remaining_tokens.push(remaining.unwrap_or(-1));
    }

    /// Time to move a program's cache; [`NEVER`] if no worker has room.
    fn move_time_of(&self, p: &Program) -> Span {
        let time = self.move_time(p.context_tokens);
        if time == NEVER {
            return time;
        }
        let place = p.placement.map(|place| place.worker);
        let room = place.and_then(|worker| self.roomiest_but(p.id, worker));
        room.map_or(NEVER, |_| time)
    }

    /// Time to move this many tokens between two workers.
    pub(crate) fn move_time(&self, tokens: u64) -> Span {
        let configured = self.config.kv.migration_tokens_per_s;
        if configured == 0 {
            return NEVER;
        }
        let estimates = &self.state.estimates;
        estimates.move_time(self.state.now, tokens, configured)
    }

    /// Time to load this many tokens from host memory.
    pub(crate) fn load_time(&self, tokens: u64) -> Span {
        let configured = self.config.kv.host_tokens_per_s;
        let estimates = &self.state.estimates;
        estimates.load_time(self.state.now, tokens, configured)
    }

    /// Time to compute this many tokens again; 0 if the speed is unknown.
    pub(crate) fn prefill_time(&self, tokens: u64) -> Span {
        prefill_time(tokens, self.prefill_speed())
    }

    /// The same time at one worker.
    pub(super) fn prefill_time_at(&self, worker: &Worker, tokens: u64) -> Span {
        prefill_time(tokens, self.prefill_speed_of(worker))
    }

    /// Prompt tokens that a worker computes per second: as measured, before that as configured.
    fn prefill_speed(&self) -> u64 {
        let configured = self.config.kv.prefill_tokens_per_s;
        self.state.estimates.prefill_speed(configured)
    }

    /// Prefill speed of one worker: its own, or that of its class, once known.
    pub(crate) fn prefill_speed_of(&self, worker: &Worker) -> u64 {
        let known = self.state.prefill_speed_of(worker);
        known.unwrap_or_else(|| self.prefill_speed())
    }

    /// Learns from a step that ended at its worker, which computed `computed` tokens of its prompt.
    pub(super) fn learn_prefill_speed(&mut self, step: StepId, computed: u64) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let (StepState::Running { worker, since }, Some(at)) = (s.state, s.first_token_at) else {
            return;
        };
        let w = self.state.workers.get_mut(&worker);
        if w.is_some_and(|w| w.speeds.prompt_computed(computed, at.since(since))) {
            self.compare_speeds();
        }
    }

    /// Learns from a step that ended with `output` tokens; `computed` tokens of its prompt were not
    /// in the engine's cache.
    pub(super) fn learn_pace(&mut self, step: StepId, output: u64, computed: Option<u64>) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let StepState::Running { worker, since } = s.state else {
            return;
        };
        let w = self.state.workers.get_mut(&worker);
        if let (Some(w), Some(before)) = (w, s.steps_time_before) {
            let ran = RanStep {
                since,
                first_token_at: s.first_token_at,
                steps_time_before: before,
                output_tokens: output,
                computed_tokens: computed,
            };
            let (now, running) = (self.state.now, w.running_steps);
            w.speeds.step_ended(now, running, &ran);
        }
    }

    /// Updates the median after a worker's speed has changed.
    pub(crate) fn compare_speeds(&mut self) {
        let speeds = self.state.workers.values().map(|w| &w.speeds);
        self.state.estimates.compare_speeds(speeds);
    }
}
