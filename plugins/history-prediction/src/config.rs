//! The configuration of the policy.

/// Largest allowed number of groups; with more, the snapshot would be too large to store.
const GROUPS_MAX: u32 = 16_384;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Guess of a program's tokens before anything is learnt.
        total_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of a program's seconds in tools before anything is learnt.
        total_tool_s: f64 = 10.0, 0.0..=1e9;
        /// Weight of the whole job in a group's figures, in programs.
        job_weight: f64 = 1.0, 0.0..=1e6;
        /// Number of programs after which old ones are gradually forgotten.
        memory: u32 = 256, 1..=1_000_000;
        /// Maximum number of groups.
        groups_max: u32 = 2_048, 1..=GROUPS_MAX;
    }
}
