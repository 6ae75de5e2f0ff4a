//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time that one generated token takes, in milliseconds.
    pub token_ms: f64,
    /// Seconds of work that a second in the queue counts for.
    pub ageing: f64,
    /// Work of a program without a prediction, in seconds.
    pub unknown_s: f64,
    /// Most predicted work that counts, in seconds.
    pub remaining_s_max: f64,
    /// How much a waiting program must be ahead to preempt a running step, in seconds; `None` for
    /// never.
    pub preempt_margin_s: Option<f64>,
    /// Steps that have run longer keep running.
    pub preempt_run_ms_max: u64,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            token_ms: 20.0,
            ageing: 1.0,
            unknown_s: 60.0,
            remaining_s_max: 600.0,
            preempt_margin_s: None,
            preempt_run_ms_max: 2_000,
            extra: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// `invalid-config`, naming the key: an unknown key or a value out of range.
    pub fn parse(json: &str) -> Result<Self, PolicyError> {
        let config: Self = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        within("token_ms", config.token_ms, 1e6)?;
        within("ageing", config.ageing, 1e6)?;
        within("unknown_s", config.unknown_s, SECONDS_MAX)?;
        within("remaining_s_max", config.remaining_s_max, SECONDS_MAX)?;
        if let Some(margin_s) = config.preempt_margin_s {
            within("preempt_margin_s", margin_s, SECONDS_MAX)?;
        }
        Ok(config)
    }
}

fn within(key: &str, value: f64, max: f64) -> Result<(), PolicyError> {
    if (0.0..=max).contains(&value) {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} is {value}; give a number from 0 to {max}"
    )))
}

#[cfg(test)]
mod tests {
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
