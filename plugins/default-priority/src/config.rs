//! The configuration of the policy.

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Time to generate one token, in milliseconds.
        token_ms: f64 = 20.0, 0.0..=1e6;
        /// Seconds of work that a second in the queue counts as.
        ageing: f64 = 1.0, 0.0..=1e6;
        /// Work of a program without a prediction, in seconds.
        unknown_s: f64 = 60.0, 0.0..=SECONDS_MAX;
        /// Maximum of predicted work, in seconds.
        remaining_s_max: f64 = 600.0, 0.0..=SECONDS_MAX;
        /// How far ahead a waiting program must be to preempt a running step, in seconds; null to
        /// never preempt.
        preempt_margin_s: Option<f64> = None, 0.0..=SECONDS_MAX;
        /// Run time beyond which steps are never preempted, in milliseconds.
        preempt_run_ms_max: u64 = 2_000;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"token_ms": -1}"#, "token_ms"),
            (r#"{"ageing": 1e9}"#, "ageing"),
            (r#"{"preempt_margin_s": -0.1}"#, "preempt_margin_s"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
