//! Reports of engines: their metrics, properties and models.
//!
//! Every reading is partial. An adapter merges those of several endpoints into one.

mod facts;
pub mod llama_cpp;
mod models;
pub mod prometheus;
pub mod sglang;
pub mod vllm;

pub use facts::EngineFacts;
pub use models::{ModelInfo, models_of};

use treadle_model::reported_tokens;

/// Larger reported numbers of GPUs are ignored.
pub const GPUS_MAX: u32 = 4_096;

/// The state of an engine, as far as it reports it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EngineReading {
    /// Tokens that fit into the KV cache.
    pub capacity_tokens: Option<u64>,
    /// Tokens of prompt and output that one request may have.
    pub context_tokens_max: Option<u64>,
    /// Concurrent requests, if fixed.
    pub slots: Option<u64>,
    /// GPUs that it runs on.
    pub gpus: Option<u32>,
    /// Whether it offloads caches to its own host memory.
    pub offloads: bool,
    /// Running requests.
    pub running: Option<u64>,
    /// Requests that wait in its queue.
    pub waiting: Option<u64>,
    /// Tokens of the KV cache in use.
    pub used_tokens: Option<u64>,
    /// Prompt tokens found in the cache since its start.
    pub cached_tokens_total: Option<u64>,
    /// Prompt tokens since its start, including cached ones.
    pub prompt_tokens_total: Option<u64>,
}

impl EngineReading {
    /// Removes implausible sizes. Counters since its start are not checked, as they are only shown.
    fn plausible(self) -> EngineReading {
        EngineReading {
            capacity_tokens: self.capacity_tokens.and_then(reported_tokens),
            context_tokens_max: self.context_tokens_max.and_then(reported_tokens),
            used_tokens: self.used_tokens.and_then(reported_tokens),
            gpus: self.gpus.filter(|gpus| (1..=GPUS_MAX).contains(gpus)),
            ..self
        }
    }

    /// Fills missing values from another reading.
    pub fn or(self, other: EngineReading) -> EngineReading {
        EngineReading {
            capacity_tokens: self.capacity_tokens.or(other.capacity_tokens),
            context_tokens_max: self.context_tokens_max.or(other.context_tokens_max),
            slots: self.slots.or(other.slots),
            gpus: self.gpus.or(other.gpus),
            offloads: self.offloads || other.offloads,
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
    fn absurd_sizes_are_not_reported() {
        for size in ["18446744073709551615", "1e300", "1099511627777"] {
            let metrics = |names: [&str; 3]| -> String {
                names.map(|name| format!("{name} {size}\n")).concat()
            };
            let of_sglang = metrics([
                "sglang:max_total_num_tokens",
                "sglang:num_used_tokens",
                "sglang:num_running_reqs",
            ]);
            let of_vllm = format!(
                "vllm:cache_config_info{{kv_cache_size_tokens=\"{size}\"}} 1\n\
                 vllm:kv_cache_usage_perc {size}\n"
            );
            let info = format!(
                "{{\"max_total_num_tokens\":{size},\"context_length\":{size},\"internal_states\":[]}}"
            );
            let slots = format!("[{{\"id\":0,\"n_ctx\":{size}}},{{\"id\":1,\"n_ctx\":{size}}}]");
            let props = format!(
                "{{\"total_slots\":2,\"default_generation_settings\":{{\"n_ctx\":{size}}}}}"
            );
            let readings = [
                Some(sglang::reading_of_metrics(&of_sglang)),
                Some(vllm::reading_of_metrics(&of_vllm)),
                sglang::reading_of_server_info(info.as_bytes()),
                llama_cpp::reading_of_slots(slots.as_bytes()),
                llama_cpp::reading_of_props(props.as_bytes()),
            ];
            for reading in readings.into_iter().flatten() {
                let sizes = (
                    reading.capacity_tokens,
                    reading.context_tokens_max,
                    reading.used_tokens,
                );
                assert_eq!(sizes, (None, None, None), "{size}: {reading:?}");
            }
            let models = format!("{{\"data\":[{{\"id\":\"a\",\"max_model_len\":{size}}}]}}");
            let models = models_of(models.as_bytes());
            assert!(
                models
                    .iter()
                    .all(|model| model.context_tokens_max.is_none())
            );
        }
    }

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
