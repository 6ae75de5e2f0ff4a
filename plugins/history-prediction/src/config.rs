//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Groups that can be remembered; beyond, a snapshot would not be stored.
const GROUPS_MAX: u32 = 16_384;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Guess of a program's tokens before anything is learnt.
    pub total_tokens: f64,
    /// Guess of a program's seconds in tools before anything is learnt.
    pub total_tool_s: f64,
    /// Programs of a group that the whole job counts for.
    pub job_weight: f64,
    /// After so many programs old ones begin to be forgotten.
    pub memory: u32,
    /// Groups that are remembered.
    pub groups_max: u32,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            total_tokens: 1_000.0,
            total_tool_s: 10.0,
            job_weight: 1.0,
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
            ("total_tokens", config.total_tokens, 0.0, 1e9),
            ("total_tool_s", config.total_tool_s, 0.0, 1e9),
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
