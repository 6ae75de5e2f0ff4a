//! The configuration of the policy.

/// Largest value of any key.
const KEY_MAX: f64 = 1e9;

treadle_plugin::choice! {
    /// The ranking of programs.
    pub enum Rank {
        /// Predicted tokens still to be generated.
        Remaining = "remaining",
        /// These and the tokens generated so far.
        Total = "total",
    }
}

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// The ranking of programs: `remaining`, by the predicted tokens still to be generated;
        /// `total`, by these and the tokens generated so far.
        rank: Rank = Rank::Remaining;
        /// Tokens that a program without a prediction counts as, in addition to those that it has
        /// generated.
        default_tokens: f64 = 4_096.0, 0.0..=KEY_MAX;
        /// Milliseconds of tool time that count as a token; null ignores tools, as in the paper.
        tool_token_ms: Option<f64> = None, 1e-3..=KEY_MAX;
        /// How far ahead a waiting program must be to preempt a running step, in tokens; null to
        /// never preempt.
        preempt_margin_tokens: Option<f64> = Some(1_024.0), 0.0..=KEY_MAX;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"rank": "shortest"}"#, "shortest"),
            (r#"{"default_tokens": -1}"#, "default_tokens"),
            (r#"{"tool_token_ms": 0}"#, "tool_token_ms"),
            (r#"{"preempt_margin_tokens": -1}"#, "preempt_margin_tokens"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
