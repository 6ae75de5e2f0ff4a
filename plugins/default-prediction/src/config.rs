//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Groups that can be remembered; beyond, a snapshot would not be stored.
const GROUPS_MAX: u32 = 16_384;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Guess of the remaining tokens before anything is learnt.
    pub remaining_tokens: f64,
    /// Guess of the remaining seconds in tools before anything is learnt.
    pub remaining_tool_s: f64,
    /// Programs of a group that the whole job counts for.
    pub job_weight: f64,
    /// After so many rows old ones begin to be forgotten.
    pub memory: u32,
    /// Groups that are remembered.
    pub groups_max: u32,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            remaining_tokens: 1_000.0,
            remaining_tool_s: 10.0,
            job_weight: 4.0,
            memory: 256,
            groups_max: 2_048,
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
        let (memory, groups_max) = (f64::from(config.memory), f64::from(config.groups_max));
        for (key, value, min, max) in [
            ("remaining_tokens", config.remaining_tokens, 0.0, 1e9),
            ("remaining_tool_s", config.remaining_tool_s, 0.0, 1e9),
            ("job_weight", config.job_weight, 0.0, 1e6),
            ("memory", memory, 1.0, 1e6),
            ("groups_max", groups_max, 1.0, f64::from(GROUPS_MAX)),
        ] {
            if !(min..=max).contains(&value) {
                return Err(PolicyError::invalid_config(format!(
                    "{key} is {value}; give a number from {min} to {max}"
                )));
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
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
