//! Prompts that an engine has yet to compute. A request that waits inside an engine holds nothing
//! there: its cached prefix may be evicted before its turn, and no policy can reorder it. So only
//! enough prompts are sent to keep the engine busy; the others wait here, with their caches in host
//! memory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::{Span, StepId, Timestamp};

/// A prompt at an engine, before its first token.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Prompt {
    /// Tokens that are not in the cache.
    tokens: u64,
    /// When it will be computed at the engine's speed. Engines that answer in one piece report
    /// nothing earlier.
    done_at: Timestamp,
}

/// The prompts of one engine.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct Backlog {
    prompts: BTreeMap<StepId, Prompt>,
    /// Sum of all prompts.
    tokens: u64,
}

impl Backlog {
    /// True without prompts.
    pub(super) fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    /// Tokens of all prompts.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Adds a prompt that is sent or about to be sent; the engine computes it after the others.
    pub(super) fn add(&mut self, step: StepId, tokens: u64, now: Timestamp, tokens_per_s: u64) {
        if tokens_per_s == 0 || self.prompts.contains_key(&step) {
            return;
        }
        self.expire(now);
        let last = self.prompts.values().map(|prompt| prompt.done_at).max();
        let takes = u128::from(tokens) * 1_000_000 / u128::from(tokens_per_s);
        let takes = Span(u64::try_from(takes).unwrap_or(u64::MAX));
        let done_at = last.unwrap_or(now).max(now) + takes;
        self.prompts.insert(step, Prompt { tokens, done_at });
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// Removes a prompt that is computed or no longer there; true if it was present.
    pub(super) fn end(&mut self, step: StepId) -> bool {
        let Some(prompt) = self.prompts.remove(&step) else {
            return false;
        };
        self.tokens = self.tokens.saturating_sub(prompt.tokens);
        true
    }

    /// Removes prompts that must be computed by now.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.prompts.retain(|_, prompt| prompt.done_at > now);
        self.tokens = self.prompts.values().map(|prompt| prompt.tokens).sum();
    }

    /// Recomputes its sum; for tests.
    pub(super) fn assert_sums(&self) {
        let sum: u64 = self.prompts.values().map(|prompt| prompt.tokens).sum();
        assert_eq!(sum, self.tokens, "tokens of prompts");
    }

    /// The steps whose prompts these are.
    pub(super) fn steps(&self) -> impl Iterator<Item = StepId> + '_ {
        self.prompts.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;
    use treadle_model::{StepId, Timestamp};

    #[test]
    fn prompts_are_computed_one_after_the_other() {
        let mut backlog = Backlog::default();
        backlog.add(StepId(1), 1_000, Timestamp(0), 1_000);
        backlog.add(StepId(2), 2_000, Timestamp(0), 1_000);
        backlog.add(StepId(2), 9_000, Timestamp(0), 1_000);
        assert_eq!(backlog.tokens(), 3_000, "each counts once");
        backlog.expire(Timestamp(1_000_000));
        assert_eq!(backlog.tokens(), 2_000);
        backlog.expire(Timestamp(2_999_999));
        assert_eq!(backlog.tokens(), 2_000);
        backlog.expire(Timestamp(3_000_000));
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_first_token_marks_the_prompt_as_computed() {
        let mut backlog = Backlog::default();
        backlog.add(StepId(1), 1_000, Timestamp(0), 1_000);
        assert!(backlog.end(StepId(1)) && !backlog.end(StepId(1)));
        assert_eq!(backlog.tokens(), 0);
        backlog.add(StepId(1), 1_000, Timestamp(0), 0);
        assert!(backlog.is_empty(), "without a speed nothing is known");
    }
}
