//! The core's part of the configuration, in the core's units.

use treadle_core::{CoreConfig, KvConfig, RolloutConfig};
use treadle_model::Span;

use super::{Config, KvSection, RolloutSection};

impl Config {
    /// Settings of the core; what is not configured is the core's own.
    pub fn core(&self) -> CoreConfig {
        let scheduler = &self.scheduler;
        CoreConfig {
            mode: scheduler.mode,
            rollout: self.rollout.core(),
            kv: self.kv.core(),
            tick: Span::from_millis(scheduler.tick_ms),
            high_watermark_ppm: millionths(scheduler.high_watermark),
            low_watermark_ppm: millionths(scheduler.low_watermark),
            queue_wait_max: Span::from_secs(scheduler.queue_wait_s_max),
            deferral_max: Span::from_secs(scheduler.deferral_s_max),
            quantum: Span::from_secs(scheduler.quantum_s),
            pause_weight_ppm: millionths(scheduler.pause_weight),
            program_idle_max: Span::from_secs(scheduler.program_idle_s_max),
            unnamed_idle_max: Span::from_secs(scheduler.unnamed_idle_s_max),
            programs_max: scheduler.programs_max,
            queue_steps_max: scheduler.queue_len_max,
            candidates_max: self.plugins.candidates_max,
            ask_deadline: Span::from_millis(self.plugins.answer_deadline_ms),
            attempts_max: self.engines.retry_max + 1,
            ..CoreConfig::default()
        }
    }
}

impl RolloutSection {
    fn core(&self) -> RolloutConfig {
        RolloutConfig {
            gather: Span::from_millis(self.gather_ms),
            programs_max: self.programs_max,
            migration_interval: Span::from_millis(self.migration_interval_ms),
            migration_tokens_per_s: self.migration_tokens_per_s,
            prefill_tokens_per_s: self.prefill_tokens_per_s,
            memory_ppm: millionths(self.memory_share),
            growth_ppm: millionths(self.growth),
            engine_steps_max: self.engine_steps_max,
        }
    }
}

impl KvSection {
    fn core(&self) -> KvConfig {
        KvConfig {
            retention: self.retention,
            host_tokens_max: self.host_tokens_max,
            host_tokens_per_s: self.host_tokens_per_s,
            offload_link_ppm: millionths(self.offload_link_share),
            migration_tokens_per_s: self.migration_tokens_per_s,
            prefill_tokens_per_s: self.prefill_tokens_per_s,
            transfer_max: Span::from_secs(self.transfer_s_max),
        }
    }
}

fn millionths(share: f64) -> u32 {
    (share * 1e6).round() as u32
}
