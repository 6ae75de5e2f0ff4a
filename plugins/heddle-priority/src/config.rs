//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Largest value of any key.
const KEY_MAX: f64 = 1e9;

/// What a program is ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rank {
    /// Predicted tokens still to be generated.
    Remaining,
    /// These and the tokens generated so far.
    Total,
}

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What a program is ranked by.
    pub rank: Rank,
    /// Tokens that a program without a prediction counts for, beside those that it has
    /// generated.
    pub default_tokens: f64,
    /// Milliseconds of tool time that count as a token; `None` to leave tools out.
    pub tool_token_ms: Option<f64>,
    /// How far ahead a waiting program must be to preempt a running step, in tokens; `None` for
    /// never.
    pub preempt_margin_tokens: Option<f64>,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rank: Rank::Remaining,
            default_tokens: 4_096.0,
            tool_token_ms: None,
            preempt_margin_tokens: Some(1_024.0),
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
        within("default_tokens", config.default_tokens, 0.0)?;
        within("tool_token_ms", config.tool_token_ms.unwrap_or(1.0), 1e-3)?;
        let margin = config.preempt_margin_tokens.unwrap_or(0.0);
        within("preempt_margin_tokens", margin, 0.0)?;
        Ok(config)
    }
}

fn within(key: &str, value: f64, min: f64) -> Result<(), PolicyError> {
    if (min..=KEY_MAX).contains(&value) {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} is {value}; give a number from {min} to {KEY_MAX}"
    )))
}

#[cfg(test)]
mod tests {
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
