//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Groups that can be remembered; beyond, a snapshot would not be stored.
const GROUPS_MAX: u32 = 4_096;
/// Groups that one question may have without some of them being forgotten on the way.
const GROUPS_MIN: u32 = 1_024;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Guess of the remaining tokens before anything is learnt.
    pub remaining_tokens: f64,
    /// Guess of the remaining seconds in tools before anything is learnt.
    pub remaining_tool_s: f64,
    /// After so many rows old ones begin to be forgotten.
    pub memory: u32,
    /// After so many programs of a group old ones begin to be forgotten.
    pub group_memory: u32,
    /// Groups that are remembered.
    pub groups_max: u32,
    /// Names of the extra columns; unknown ones are passed over.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            remaining_tokens: 1_000.0,
            remaining_tool_s: 10.0,
            memory: 100_000,
            group_memory: 64,
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
        let counts = [config.memory, config.group_memory, config.groups_max].map(f64::from);
        for (key, value, min, max) in [
            ("remaining_tokens", config.remaining_tokens, 0.0, 1e9),
            ("remaining_tool_s", config.remaining_tool_s, 0.0, 1e9),
            ("memory", counts[0], 1.0, 1e9),
            ("group_memory", counts[1], 1.0, 1e6),
            (
                "groups_max",
                counts[2],
                f64::from(GROUPS_MIN),
                f64::from(GROUPS_MAX),
            ),
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
