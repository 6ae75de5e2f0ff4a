//! Timings of live programs, in the shape that `ThunderAgent`'s clients read
//! from `/profiles`.

use std::collections::HashMap;
use treadle_core::programs::ProgramEvent;
use treadle_core::{Core, Event};
use treadle_model::{Phase, Timestamp};

/// Sums over a program's finished steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Profile {
    steps: u64,
    prefill_us: u64,
    decode_us: u64,
    pause_us: u64,
    tool_calls: u64,
    tool_us: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    cached_steps: u64,
    cached_tokens: u64,
    hit_rate_sum: f64,
}

impl Profile {
    /// Averages per step, in the scheduler's seconds.
    pub fn to_json(self) -> serde_json::Value {
        let secs = |us: u64, n: u64| round4(us as f64 / 1e6 / n.max(1) as f64);
        let mean = |sum: u64, n: u64| (n > 0).then(|| round4(sum as f64 / n as f64));
        let hit_rate = self.hit_rate_sum / self.cached_steps.max(1) as f64;
        serde_json::json!({
            "step_count": self.steps,
            "avg_prefill_s": secs(self.prefill_us, self.steps),
            "avg_decode_s": secs(self.decode_us, self.steps),
            "avg_pause_s": secs(self.pause_us, self.steps),
            "avg_tool_call_s": secs(self.tool_us, self.tool_calls),
            "avg_prompt_tokens": mean(self.prompt_tokens, self.steps),
            "avg_completion_tokens": mean(self.output_tokens, self.steps),
            "avg_cached_tokens": mean(self.cached_tokens, self.cached_steps),
            "avg_kv_hit_rate": (self.cached_steps > 0).then(|| round4(hit_rate)),
        })
    }
}

fn round4(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The profiles of live programs, by key.
#[derive(Default)]
pub struct Profiles {
    by_key: HashMap<Box<str>, Profile>,
}

impl Profiles {
    /// One program's profile.
    pub fn get(&self, key: &str) -> Option<Profile> {
        self.by_key.get(key).copied()
    }

    /// Updates from an event that the core is about to handle.
    pub(crate) fn observe(&mut self, core: &Core, event: &Event, now: Timestamp) {
        match event {
            Event::Program(ProgramEvent::StepArrived(arrival)) => {
                let known = core
                    .programs()
                    .program(&arrival.program)
                    .filter(|p| p.steps_finished > 0);
                let Some(p) = known.filter(|p| p.phase == Phase::Acting) else {
                    return;
                };
                let profile = self.by_key.entry(p.key.clone()).or_default();
                profile.tool_calls += 1;
                profile.tool_us += now.since(p.phase_since).micros();
            }
            Event::Program(ProgramEvent::StepFinished { step, tokens, .. }) => {
                let Some(s) = core.programs().steps.get(step) else {
                    return;
                };
                let Some(p) = core.programs().live.get(&s.program) else {
                    return;
                };
                let profile = self.by_key.entry(p.key.clone()).or_default();
                let sent = s.dispatched_at.unwrap_or(now);
                let first = s.first_token_at.unwrap_or(now);
                profile.steps += 1;
                profile.pause_us += sent.since(s.arrived_at).micros();
                profile.prefill_us += first.since(sent).micros();
                profile.decode_us += now.since(first).micros();
                let prompt = s.prompt_of(*tokens);
                profile.prompt_tokens += prompt;
                profile.output_tokens += tokens.output;
                if let Some(cached) = tokens.cached {
                    profile.cached_steps += 1;
                    profile.cached_tokens += cached;
                    profile.hit_rate_sum += cached as f64 / prompt.max(1) as f64;
                }
            }
            _ => {}
        }
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }
}
