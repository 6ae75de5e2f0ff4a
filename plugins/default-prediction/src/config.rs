//! The configuration.

/// Groups that can be remembered; beyond, a snapshot would not be stored.
const GROUPS_MAX: u32 = 16_384;

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Guess of the remaining tokens before anything is learnt.
        remaining_tokens: f64 = 1_000.0, 0.0..=1e9;
        /// Guess of the remaining seconds in tools before anything is learnt.
        remaining_tool_s: f64 = 10.0, 0.0..=1e9;
        /// Programs of a group that the whole job counts for.
        job_weight: f64 = 4.0, 0.0..=1e6;
        /// After so many rows old ones begin to be forgotten.
        memory: u32 = 256, 1..=1_000_000;
        /// Groups that are remembered.
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
