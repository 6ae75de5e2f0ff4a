//! `[rollout]`: programs whose steps a priority policy ranks.

use super::section::section;

section! {
    /// Programs whose steps a priority policy ranks (`treadle plugin bind`). docs/rollouts.md describes which policy decides what.
    RolloutSection in "rollout" {
        /// How long new programs are gathered, so that those that arrive together are placed together. Predictions for them arrive meanwhile.
        gather_ms: u64 = 20, "milliseconds", 1 ..= 600_000;
        /// Interval at which the policy is asked which programs to move, if caches can be moved (`kv.migration_tokens_per_s`); 0 for never.
        migration_interval_ms: u64 = 5_000, "milliseconds", 0 ..= 3_600_000;
        /// Steps at one engine at the same time; others wait in treadle, the most urgent first, and the priority policy may preempt a running one. 0 if the engines order their steps themselves.
        engine_steps_max: u32 = 0, "steps", 0 ..= 1_000_000;
        fixed {
            /// Programs in one call of a placement policy.
            programs_max: usize = 10_000, "programs", 1 ..= 100_000;
            /// Share of an engine's cache that the predicted contexts of programs placed there may fill; other programs wait. Without predictions their current contexts count (`scheduler.low_watermark`).
            memory_share: f64 = 0.95, "share", 0.0 ..= 2.0;
        }
    }
}
