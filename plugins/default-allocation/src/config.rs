//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;
/// Most rollouts beyond those wanted.
const SURPLUS_MAX: u32 = 64;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Wait from which a pool is kept for an action, in seconds.
    pub reserve_s: f64,
    /// Whether units left over are shared out.
    pub elastic: bool,
    /// Rollouts started beyond those wanted for a late prompt.
    pub surplus: u32,
    /// Run time of the oldest rollout from which a prompt is late, in seconds; `None`
    /// for never.
    pub late_s: Option<f64>,
    /// Prompts with more failed rollouts get no further ones.
    pub failed_max: u32,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reserve_s: 30.0,
            elastic: true,
            surplus: 1,
            late_s: None,
            failed_max: 16,
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
        let late_s = config.late_s.unwrap_or(0.0);
        for (key, value, max) in [
            ("reserve_s", config.reserve_s, SECONDS_MAX),
            ("late_s", late_s, SECONDS_MAX),
            ("surplus", f64::from(config.surplus), f64::from(SURPLUS_MAX)),
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
            (r#"{"reserve_s": -1}"#, "reserve_s"),
            (r#"{"late_s": 1e12}"#, "late_s"),
            (r#"{"surplus": 65}"#, "surplus"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
