//! `[rollout]`: the mode in which policies place programs and rank their steps.

use super::section::section;

section! {
    /// Settings of `scheduler.mode = "rollout"`; of no effect in other modes. docs/rollouts.md has
    /// what is decided where.
    RolloutSection in "rollout" {
        /// How long new programs are gathered, so that those that come together are placed together. Predictions of what they have to come arrive meanwhile.
        gather_ms: u64 = 20, "milliseconds", 1 ..= 600_000;
        /// Period of the question which programs should be elsewhere; 0 for never. Which engines'
        /// caches can be moved is in docs/kv-transfer.md; of others the decision is recorded but
        /// not carried out.
        migration_interval_ms: u64 = 0, "milliseconds", 0 ..= 3_600_000;
        /// Tokens of context that one transfer moves in a second; 0 where it is not known: then no step waits for a transfer.
        migration_tokens_per_s: u64 = 0, "tokens/s", 0 ..= 1_000_000_000;
        /// Prompt tokens that an engine computes in a second, to decide whether waiting for a
        /// transfer is worth it; 0 to go by what is measured.
        prefill_tokens_per_s: u64 = 0, "tokens/s", 0 ..= 1_000_000_000;
        /// Share of an engine's cache that programs which have begun there may come to need by what is predicted of them; others wait for their first step until there is room (0.95 where a prediction policy is bound). 0 to send all at once.
        memory_share: f64 = 0.0, "share", 0.0 ..= 2.0;
        /// Steps at one engine at once; more wait here, the most urgent first, and the priority
        /// policy may preempt a running one. 0 where engines order their steps themselves.
        engine_steps_max: u32 = 0, "steps", 0 ..= 1_000_000;
        fixed {
            /// Programs in one question to a placement policy.
            programs_max: usize = 10_000, "programs", 1 ..= 100_000;
            /// Tokens by which a context grows with each generated one, what tools add included; for `rollout.memory_share`.
            growth: f64 = 1.2, "tokens", 0.0 ..= 100.0;
        }
    }
}
