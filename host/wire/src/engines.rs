//! What engines tell of themselves: their metrics, properties and models.
//!
//! Every reading is partial. An adapter merges those of several endpoints into one.

pub mod llama_cpp;
mod models;
pub mod prometheus;
pub mod sglang;
pub mod vllm;

pub use models::{ModelInfo, models_of};

/// The state of an engine, as far as it tells.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EngineReading {
    /// Tokens that fit into the KV cache.
    pub capacity_tokens: Option<u64>,
    /// Tokens of prompt and output that one request may have.
    pub context_tokens_max: Option<u64>,
    /// Requests that it runs at once, where that is fixed.
    pub slots: Option<u64>,
    /// Requests it runs now.
    pub running: Option<u64>,
    /// Requests that wait in its queue.
    pub waiting: Option<u64>,
    /// Tokens in the KV cache that are in use.
    pub used_tokens: Option<u64>,
    /// Prompt tokens found in the cache since it began.
    pub cached_tokens_total: Option<u64>,
    /// Prompt tokens since it began, the cached ones included.
    pub prompt_tokens_total: Option<u64>,
}

impl EngineReading {
    /// This reading, with what it lacks taken from another.
    pub fn or(self, other: EngineReading) -> EngineReading {
        EngineReading {
            capacity_tokens: self.capacity_tokens.or(other.capacity_tokens),
            context_tokens_max: self.context_tokens_max.or(other.context_tokens_max),
            slots: self.slots.or(other.slots),
            running: self.running.or(other.running),
            waiting: self.waiting.or(other.waiting),
            used_tokens: self.used_tokens.or(other.used_tokens),
            cached_tokens_total: self.cached_tokens_total.or(other.cached_tokens_total),
            prompt_tokens_total: self.prompt_tokens_total.or(other.prompt_tokens_total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reading_goes_before_the_second() {
        let first = EngineReading {
            slots: Some(1),
            ..EngineReading::default()
        };
        let second = EngineReading {
            slots: Some(2),
            running: Some(3),
            ..EngineReading::default()
        };
        let merged = first.or(second);
        assert_eq!(
            (merged.slots, merged.running, merged.waiting),
            (Some(1), Some(3), None)
        );
    }
}
