//! The configuration.

/// Groups that can be remembered; beyond, a snapshot would not be stored.
const GROUPS_MAX: u32 = 16_384;

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Guess of a program's tokens before anything is learnt.
        total_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of a program's seconds in tools before anything is learnt.
        total_tool_s: f64 = 10.0, 0.0..=1e9;
        /// Programs of a group that the whole job counts for.
        job_weight: f64 = 1.0, 0.0..=1e6;
        /// After so many programs old ones begin to be forgotten.
        memory: u32 = 256, 1..=1_000_000;
        /// Groups that are remembered.
        groups_max: u32 = 2_048, 1..=GROUPS_MAX;
    }
}
