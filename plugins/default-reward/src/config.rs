//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Difference of numbers that counts as none, as a share of the reference.
    pub tolerance: f64,
    /// What is taken off for each thousand generated tokens.
    pub length_penalty: f64,
    /// Programs more weight versions old are not selected.
    pub staleness_max: Option<u32>,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tolerance: 1e-6,
            length_penalty: 0.0,
            staleness_max: None,
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
        for (key, value, max) in [
            ("tolerance", config.tolerance, 1.0),
            ("length_penalty", config.length_penalty, 1e3),
        ] {
            if !(0.0..=max).contains(&value) {
                return Err(PolicyError::invalid_config(format!(
                    "{key} is {value}; give a number from 0 to {max}"
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
            (r#"{"tolerance": 2}"#, "tolerance"),
            (r#"{"length_penalty": -1}"#, "length_penalty"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
