//! Expected costs of a program's cache: idle time while its tool runs, and loading, moving or
//! recomputing it.

use crate::Programs;
use crate::estimates::distribution::RemainingTime;
use crate::programs::action::{Action, SUBAGENT};
use crate::programs::classes::lower_median;
use crate::programs::program::Program;
use crate::programs::question::{CostEstimates, NEVER};
use crate::programs::step::StepState;
use crate::programs::worker::Worker;
use treadle_model::{Phase, Span, StepId};

impl Programs {
    /// The expected remaining time of a program's tool call.
    pub(crate) fn remaining_tool_time(&self, p: &Program) -> RemainingTime {
        let now = self.state.now;
        let tools = self.state.tools.get(&p.job);
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
            let known = tools?.get(tool)?;
            RemainingTime::of(&known.times, now.since(since), since.since(now))
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
        let job = self.state.jobs.get(&p.job);
        job.and_then(|job| RemainingTime::of(&job.gaps, elapsed, wait))
            .unwrap_or_else(|| RemainingTime::unknown(elapsed).after(wait))
    }

    /// Adds a program's cost estimates to the columns of a question.
    pub(crate) fn foresee(&self, p: &Program, costs: &mut CostEstimates) {
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
        let seen = self.state.transfer_speeds.moves;
        let seen = seen.tokens_per_s(self.state.now);
        time_for(tokens, seen.unwrap_or(configured))
    }

    /// Time to load this many tokens from host memory.
    pub(crate) fn load_time(&self, tokens: u64) -> Span {
        let seen = self.state.transfer_speeds.loads;
        let seen = seen.tokens_per_s(self.state.now);
        time_for(tokens, seen.unwrap_or(self.config.kv.host_tokens_per_s))
    }

    /// Time to compute this many tokens again; 0 if the speed is unknown.
    pub(crate) fn prefill_time(&self, tokens: u64) -> Span {
        match self.prefill_speed() {
            0 => Span(0),
            speed => time_for(tokens, speed),
        }
    }

    /// The same time at one worker.
    pub(crate) fn prefill_time_at(&self, worker: &Worker, tokens: u64) -> Span {
        match self.prefill_speed_of(worker) {
            0 => Span(0),
            speed => time_for(tokens, speed),
        }
    }

    /// Prompt tokens that a worker computes per second: as measured, before that as configured.
    pub(crate) fn prefill_speed(&self) -> u64 {
        match self.state.prefill_tokens_per_s {
            0 => self.config.kv.prefill_tokens_per_s,
            measured => measured,
        }
    }

    /// Prefill speed of one worker: its own, or that of its class, once known.
    pub(crate) fn prefill_speed_of(&self, worker: &Worker) -> u64 {
        let known = self.state.prefill_speed_of(worker);
        known.unwrap_or_else(|| self.prefill_speed())
    }

    /// Learns from a step that ended at its worker, which computed `computed` tokens of its prompt.
    pub(crate) fn learn_prefill_speed(&mut self, step: StepId, computed: u64) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let (StepState::Running { worker, since }, Some(at)) = (s.state, s.first_token_at) else {
            return;
        };
        let w = self.state.workers.get_mut(&worker);
        if w.is_some_and(|w| w.prefill_speed.see(computed, at.since(since))) {
            self.compare_speeds();
        }
    }

    /// Learns from a step that ended with `output` tokens. If nothing was observed before its end,
    /// the time for its prompt is subtracted, of which `computed` tokens were not in the engine's
    /// cache.
    pub(crate) fn learn_pace(&mut self, step: StepId, output: u64, computed: Option<u64>) {
        let Some(s) = self.state.steps.get(&step) else {
            return;
        };
        let StepState::Running { worker, since } = s.state else {
            return;
        };
        let (first, now) = (s.first_token_at, self.state.now);
        let w = self.state.workers.get_mut(&worker);
        let (Some(w), Some(before)) = (w, s.steps_time_before) else {
            return;
        };
        let ran = Span(
            w.steps_time
                .by(now, w.running_steps)
                .0
                .saturating_sub(before.0),
        );
        let speed = w.prefill_speed.tokens_per_s();
        match (first, computed.zip(speed)) {
            // A step that was preempted in between waited as well.
            (Some(at), _) if at < since => {}
            (Some(at), _) => w.pace.see(output.saturating_sub(1), now.since(at), ran),
            (None, Some((computed, speed))) => {
                let all = now.since(since).0;
                let took = all.saturating_sub(time_for(computed, speed).0);
                // As many steps ran beside its prompt as beside its answer.
                let ran = u128::from(ran.0) * u128::from(took) / u128::from(all.max(1));
                let ran = Span(u64::try_from(ran).unwrap_or(u64::MAX));
                // If the prompt took most of the time, the rest may come from a wrong speed.
                if took >= all / 2 {
                    w.pace.see(output, Span(took), ran);
                }
            }
            _ => {}
        }
    }

    /// Updates the median after a worker's speed has changed.
    pub(crate) fn compare_speeds(&mut self) {
        let speeds = self.state.workers.values();
        let known = speeds.filter_map(|w| w.prefill_speed.tokens_per_s());
        if let Some(median) = lower_median(known.collect()) {
            self.state.prefill_tokens_per_s = median;
        }
    }
}

/// Time for this many tokens; [`NEVER`] if the speed is unknown.
pub(crate) fn time_for(tokens: u64, tokens_per_s: u64) -> Span {
    if tokens_per_s == 0 {
        return NEVER;
    }
    let micros = u128::from(tokens) * 1_000_000 / u128::from(tokens_per_s);
    Span(u64::try_from(micros).unwrap_or(u64::MAX))
}
