//! The configuration of the policy.

/// Largest allowed number of groups; with more, the snapshot would be too large to store.
const GROUPS_MAX: u32 = 16_384;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Guess of the remaining tokens before anything is learnt.
        remaining_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of the remaining seconds in tools before anything is learnt.
        remaining_tool_s: f64 = 10.0, 0.0..=1e9;
        /// Weight of the whole job in a group's figures, in programs.
        job_weight: f64 = 4.0, 0.0..=1e6;
        /// Number of rows after which old ones are gradually forgotten.
        memory: u32 = 256, 1..=1_000_000;
        /// Maximum number of groups.
        groups_max: u32 = 2_048, 1..=GROUPS_MAX;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"remaining_tokens": -1}"#, "remaining_tokens"),
            (r#"{"memory": 0}"#, "memory"),
            (r#"{"groups_max": 100000}"#, "groups_max"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
