//! The configuration.

/// Groups that can be remembered; beyond, a snapshot would not be stored.
const GROUPS_MAX: u32 = 4_096;
/// Groups that one question may have without some of them being forgotten on the way.
const GROUPS_MIN: u32 = 1_024;

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Guess of the remaining tokens before anything is learnt.
        remaining_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of the remaining seconds in tools before anything is learnt.
        remaining_tool_s: f64 = 10.0, 0.0..=1e9;
        /// After so many rows old ones begin to be forgotten.
        memory: u32 = 100_000, 1..=1_000_000_000;
        /// After so many programs of a group old ones begin to be forgotten.
        group_memory: u32 = 64, 1..=1_000_000;
        /// Groups that are remembered.
        groups_max: u32 = 2_048, GROUPS_MIN..=GROUPS_MAX;
    }
}
