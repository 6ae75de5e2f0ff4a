//! The configuration and its JSON form.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Largest share of load that can be configured.
const SHARE_MAX: f64 = 100.0;

/// What the policy does; the crate's first page has the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How far above the mean load a worker still takes programs back.
    pub load_slack: f64,
    /// Load that each further program of the same group counts for.
    pub spread: f64,
    /// Load that a wholly cached context outweighs in `route`.
    pub affinity: f64,
    /// How far above the mean load a worker gives acting programs away.
    pub migrate_slack: f64,
    /// Most programs that one answer moves.
    pub moves_max: u32,
    /// Names of the extra columns; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            load_slack: 0.2,
            spread: 0.05,
            affinity: 0.5,
            migrate_slack: 0.3,
            moves_max: 8,
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
        for (key, value) in [
            ("load_slack", config.load_slack),
            ("spread", config.spread),
            ("affinity", config.affinity),
            ("migrate_slack", config.migrate_slack),
        ] {
            if !(0.0..=SHARE_MAX).contains(&value) {
                return Err(PolicyError::invalid_config(format!(
                    "{key} is {value}; give a number from 0 to {SHARE_MAX}"
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
            (r#"{"load_slack": -1}"#, "load_slack"),
            (r#"{"affinity": 1000}"#, "affinity"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
