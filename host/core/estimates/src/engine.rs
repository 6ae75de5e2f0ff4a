//! The speeds of one engine.

use super::pace::{DecodePace, DecodeTime, StepsTime};
use super::speed::PrefillSpeed;
use super::time_for;
use serde::{Deserialize, Serialize};
use treadle_model::{EngineKind, Span, Timestamp};

/// What is known of an engine. Two engines are of one class if they differ only in their speeds.
#[derive(Clone, Copy, Debug)]
pub struct Engine<'a> {
    /// Its software.
    pub kind: EngineKind,
    /// The model that it serves, if it reports one.
    pub model: Option<&'a str>,
    /// Its class of hardware, if it was named.
    pub hardware: Option<&'a str>,
    /// GPUs that it runs on, if known.
    pub gpus: Option<u32>,
    /// Its KV memory, if known.
    pub capacity_tokens: Option<u64>,
    /// Its speeds.
    pub speeds: &'a EngineSpeeds,
}

impl Engine<'_> {
    /// Whether both are of one class.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let class = |e: &Self| (e.kind, e.gpus, e.capacity_tokens);
        let alike = self.model == other.model && self.hardware == other.hardware;
        class(self) == class(other) && alike
    }
}

/// The speeds of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineSpeeds {
    #[serde(default, skip_serializing_if = "DecodePace::is_unused")]
    pace: DecodePace,
    #[serde(default, skip_serializing_if = "PrefillSpeed::is_unused")]
    prefill: PrefillSpeed,
    /// The summed time of all steps that ran there.
    #[serde(default)]
    steps_time: StepsTime,
}

/// A step that ended at its engine.
#[derive(Clone, Copy, Debug)]
pub struct RanStep {
    /// When it was sent there.
    pub since: Timestamp,
    /// When its first token was observed, if that was before its end.
    pub first_token_at: Option<Timestamp>,
    /// [`EngineSpeeds::steps_time`] when it was sent there, or at its first token.
    pub steps_time_before: Span,
    /// Tokens that it generated.
    pub output_tokens: u64,
    /// Tokens of its prompt that were not in the engine's cache, if known.
    pub computed_tokens: Option<u64>,
}

impl EngineSpeeds {
    /// Its time per token, once known.
    pub fn decode_time(&self) -> Option<DecodeTime> {
        self.pace.time()
    }

    /// Prompt tokens that it computes per second, once known.
    pub fn prefill_tokens_per_s(&self) -> Option<u64> {
        self.prefill.tokens_per_s()
    }

    /// The summed time of all steps by now, given the number that has run since the last change.
    pub fn steps_time(&self, now: Timestamp, running: u32) -> Span {
        self.steps_time.by(now, running)
    }

    pub(super) fn pace(&self) -> &DecodePace {
        &self.pace
    }

    /// Records measured speeds; 0 is unknown. True if the prefill speed changed.
    pub fn measured(&mut self, prefill_tokens_per_s: u64, time: DecodeTime) -> bool {
        if time.alone.0 > 0 {
            let known = self.pace.time().and_then(|time| time.further);
            let further = time.further.or(known);
            self.pace = DecodePace::measured(DecodeTime { further, ..time });
        }
        if prefill_tokens_per_s > 0 {
            self.prefill = PrefillSpeed::measured(prefill_tokens_per_s);
        }
        prefill_tokens_per_s > 0
    }

    /// Records declared speeds, which hold as long as nothing else is known; 0 is unknown. True if
    /// the prefill speed changed.
    pub fn declared(&mut self, prefill_tokens_per_s: u64, time: DecodeTime) -> bool {
        if time.alone.0 > 0 && !self.pace.is_learnt() {
            self.pace = DecodePace::sown(time);
        }
        let is_news = prefill_tokens_per_s > 0 && !self.prefill.is_learnt();
        if is_news {
            self.prefill = PrefillSpeed::sown(prefill_tokens_per_s);
        }
        is_news
    }

    /// Keeps the known speeds as a starting point, until new steps measure them: the engine may be
    /// slower or faster when it comes back.
    pub fn remember(&mut self) {
        self.pace = self.pace.remembered();
        self.prefill = self.prefill.remembered();
    }

    /// Drops the speeds, as another engine is there.
    pub fn forget(&mut self) {
        self.pace = DecodePace::default();
        self.prefill = PrefillSpeed::default();
    }

    /// Records that the number of running steps changes.
    pub fn running_changes(&mut self, now: Timestamp, ran: u32) {
        self.steps_time.change(now, ran);
    }

    /// Records that a prompt with `tokens` uncached tokens had its first token after `took`.
    /// Returns whether the sample was used.
    pub fn prompt_computed(&mut self, tokens: u64, took: Span) -> bool {
        self.prefill.see(tokens, took)
    }

    /// Learns from a step that ended beside `running` steps, itself included. If nothing was
    /// observed before its end, the time for its prompt is subtracted.
    pub fn step_ended(&mut self, now: Timestamp, running: u32, step: &RanStep) {
        let ran = self.steps_time.by(now, running).0;
        let ran = Span(ran.saturating_sub(step.steps_time_before.0));
        let known = step.computed_tokens.zip(self.prefill.tokens_per_s());
        match (step.first_token_at, known) {
            // A step that was preempted in between waited as well.
            (Some(at), _) if at < step.since => {}
            (Some(at), _) => {
                let tokens = step.output_tokens.saturating_sub(1);
                self.pace.see(tokens, now.since(at), ran);
            }
            (None, Some((computed, speed))) => {
                let all = now.since(step.since).0;
                let took = all.saturating_sub(time_for(computed, speed).0);
                // As many steps ran beside its prompt as beside its answer.
                let ran = u128::from(ran.0) * u128::from(took) / u128::from(all.max(1));
                let ran = Span(u64::try_from(ran).unwrap_or(u64::MAX));
                // If the prompt took most of the time, the rest may come from a wrong speed.
                if took >= all / 2 {
                    self.pace.see(step.output_tokens, Span(took), ran);
                }
            }
            _ => {}
        }
    }
}
