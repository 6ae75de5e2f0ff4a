//! The configuration of the policy.

/// Largest allowed number of groups; with more, the snapshot would be too large to store.
const GROUPS_MAX: u32 = 4_096;
/// Smallest allowed number of groups, so that one call does not make the policy forget groups of
/// it.
const GROUPS_MIN: u32 = 1_024;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Guess of the remaining tokens before anything is learnt.
        remaining_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of the remaining seconds in tools before anything is learnt.
        remaining_tool_s: f64 = 10.0, 0.0..=1e9;
        /// Number of rows after which old ones are gradually forgotten.
        memory: u32 = 100_000, 1..=1_000_000_000;
        /// Number of programs of a group after which old ones are gradually forgotten.
        group_memory: u32 = 64, 1..=1_000_000;
        /// Maximum number of groups.
        groups_max: u32 = 2_048, GROUPS_MIN..=GROUPS_MAX;
    }
}
