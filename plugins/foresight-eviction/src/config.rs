//! The configuration and its JSON form.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `hold` | a cache is offloaded, or moved, when its tool call is expected to last longer than so many times the way out and back | 1 |
//! | `drop` | without a way out it is dropped when the call is expected to last longer than so many times what computing a whole worker's memory takes | 0.8; 1.25 without `price-ms` |
//! | `restore` | `"waiting"`: the longest waiting first, or `"shortest"`: the shortest context first | `"waiting"` |
//! | `turn_ms` | waits that differ by less are equal, and who has most to generate yet comes back first | 1000 |
//! | `extra` | names of the extra columns: `price-ms`, or else `idle-ms`, says what a call leaves idle; `back-ms` and `prefill-ms` order pauses, `remaining-tokens` restores; others are not used | none |

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Default of `drop` where the price of a call is known. An engine that computes a
/// prompt goes on with its other requests meanwhile, more slowly: less than all of its
/// memory is idle.
const DROP_BY_PRICE: f64 = 0.8;
/// Factors beyond this are a slip of the pen.
const FACTOR_MAX: f64 = 1_000_000.0;
/// Longest turn, an hour.
const TURN_MS_MAX: u64 = 3_600_000;

/// Which of the extra columns are which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Named {
    /// Time that a tool call is expected to last yet.
    pub idle_ms: Option<usize>,
    /// What is waited for each end that is seen.
    pub price_ms: Option<usize>,
    /// Time to bring a cache back from host memory.
    pub back_ms: Option<usize>,
    /// Time to compute it again.
    pub prefill_ms: Option<usize>,
    /// Tokens to generate yet.
    pub remaining_tokens: Option<usize>,
}

/// Which program comes back first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Restore {
    /// The one that has waited longest; within one turn the one with most to generate yet.
    #[default]
    Waiting,
    /// The shorter context, as in eq. 10 of `ThunderAgent`.
    Shortest,
}

/// What the policy does.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How long a call must be expected to last, in ways out and back.
    pub hold: f64,
    /// The same where there is no way out, in times of computing a whole memory.
    pub drop: f64,
    /// Which program comes back first.
    pub restore: Restore,
    /// Waits within one turn are equal.
    pub turn_ms: u64,
    /// Extra columns that calls carry.
    pub extra_columns: usize,
    /// Where those are that count.
    pub named: Named,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hold: 1.0,
            drop: 1.25,
            restore: Restore::Waiting,
            turn_ms: 1_000,
            extra_columns: 0,
            named: Named::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    hold: Option<f64>,
    drop: Option<f64>,
    restore: Option<String>,
    turn_ms: Option<u64>,
    #[serde(default)]
    extra: Vec<String>,
}

impl Config {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// `invalid-config`, naming the key: an unknown key or a value out of range.
    pub fn parse(json: &str) -> Result<Self, PolicyError> {
        let raw: Raw = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        let start = Self::default();
        let at = |name: &str| raw.extra.iter().position(|known| known == name);
        let drop = match at("price-ms") {
            Some(_) => DROP_BY_PRICE,
            None => start.drop,
        };
        let turn_ms = raw.turn_ms.unwrap_or(start.turn_ms);
        if !(1..=TURN_MS_MAX).contains(&turn_ms) {
            return Err(PolicyError::invalid_config(format!(
                "turn_ms is {turn_ms}; give a number from 1 to {TURN_MS_MAX}"
            )));
        }
        Ok(Self {
            hold: factor("hold", raw.hold.unwrap_or(start.hold))?,
            drop: factor("drop", raw.drop.unwrap_or(drop))?,
            restore: restore(raw.restore.as_deref())?,
            turn_ms,
            extra_columns: raw.extra.len(),
            named: Named {
                idle_ms: at("idle-ms"),
                price_ms: at("price-ms"),
                back_ms: at("back-ms"),
                prefill_ms: at("prefill-ms"),
                remaining_tokens: at("remaining-tokens"),
            },
        })
    }
}

fn restore(name: Option<&str>) -> Result<Restore, PolicyError> {
    match name {
        None | Some("waiting") => Ok(Restore::Waiting),
        Some("shortest") => Ok(Restore::Shortest),
        Some(other) => Err(PolicyError::invalid_config(format!(
            "restore is \"{other}\"; give \"waiting\" or \"shortest\""
        ))),
    }
}

fn factor(key: &str, value: f64) -> Result<f64, PolicyError> {
    if (0.0..=FACTOR_MAX).contains(&value) {
        return Ok(value);
    }
    Err(PolicyError::invalid_config(format!(
        "{key} is {value}; give a number from 0 to {FACTOR_MAX}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"colour": 1}"#, "colour"),
            (r#"{"hold": -1}"#, "hold"),
            (r#"{"drop": 1e9}"#, "drop"),
            (r#"{"turn_ms": 0}"#, "turn_ms"),
            (r#"{"restore": "newest"}"#, "restore"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert_eq!(error.code, "invalid-config");
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let json = r#"{"extra": ["prefill-ms", "colour", "idle-ms"]}"#;
        let config = Config::parse(json).unwrap();
        assert_eq!(config.extra_columns, 3);
        assert_eq!(config.named.prefill_ms, Some(0));
        assert_eq!(config.named.idle_ms, Some(2));
        assert_eq!(config.named.back_ms, None);
    }
}
