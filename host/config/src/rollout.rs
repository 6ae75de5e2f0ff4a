//! `[rollout]`: programs whose steps a priority policy ranks.

use super::section::section;

section! {
    /// Programs whose steps a priority policy ranks (`treadle plugin bind`). docs/rollouts.md has
    /// what is decided where.
    RolloutSection in "rollout" {
        /// How long new programs are gathered, so that those that come together are placed together. Predictions of what they have to come arrive meanwhile.
        gather_ms: u64 = 20, "milliseconds", 1 ..= 600_000;
        /// Period of the question which programs should be elsewhere, where caches can be moved
        /// (`kv.migration_tokens_per_s`); 0 for never.
        migration_interval_ms: u64 = 5_000, "milliseconds", 0 ..= 3_600_000;
        /// Steps at one engine at once; more wait here, the most urgent first, and the priority
        /// policy may preempt a running one. 0 where engines order their steps themselves.
        engine_steps_max: u32 = 0, "steps", 0 ..= 1_000_000;
        fixed {
            /// Programs in one question to a placement policy.
            programs_max: usize = 10_000, "programs", 1 ..= 100_000;
            /// Share of an engine's cache that programs placed there may come to need by what is predicted of them; others wait. Without predictions what they hold counts (`scheduler.low_watermark`).
            memory_share: f64 = 0.95, "share", 0.0 ..= 2.0;
        }
    }
}
