//! The configuration and its JSON form.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `profile` | `"treadle"` or `"paper"`: what the other keys start from | `"treadle"` |
//! | `decay` | `"none"`, `"exponential"` or `"geometric"` | `"exponential"` |
//! | `half_life_s` | exponential only: time in which the weight halves | 1 |
//! | `base`, `tick_ms` | geometric only: the weight is divided by `base` each tick | – |
//! | `hold_s` | time into a tool call before the decay starts | 30 |
//! | `restore` | `"waiting"`, `"shortest"` or `"ageing"` | `"waiting"` |
//! | `ageing_s` | ageing only: waiting longer than this goes first | – |
//! | `extra` | names of the extra columns; they are not used | none |
//!
//! The profile `paper` is geometric with base 2 and a tick of 1000 ms, no hold,
//! shortest first.

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;
/// Smallest base: below, rounding could exceed what one tick changes.
const BASE_MIN: f64 = 1.001;
const BASE_MAX: f64 = 1e6;

/// How the weight of an acting program decays with the time in its tool call
/// (Appendix E.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decay {
    /// The weight stays 1.
    None,
    /// Continuous time: the weight halves in every half-life.
    Exponential {
        /// Above 0.
        half_life_ms: f64,
    },
    /// Discrete time: the weight is divided by `base` at every tick.
    Geometric {
        /// Above 1.
        base: f64,
        /// At least 1.
        tick_ms: u64,
    },
}

/// Which waiting program comes back first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// Reasoning first, then the shorter context (eq. 10).
    Shortest,
    /// Reasoning first, then the longest waiting, then the shorter context.
    Waiting,
    /// As `Shortest`, but programs that have waited `ageing_ms` go before all that have not, the
    /// longest waiting first.
    Ageing {
        /// When waiting begins to count.
        ageing_ms: u64,
    },
}

/// What the policy does.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How weights decay.
    pub decay: Decay,
    /// Time into a tool call before the decay starts.
    pub hold_ms: u64,
    /// Which waiting program comes back first.
    pub restore: Restore,
    /// Names of the extra columns that calls carry; they are not used.
    pub extra: Vec<String>,
}

impl Default for Config {
    /// treadle's: a placement lasts through tool calls of usual length, then ends quickly; the
    /// longest waiting comes back first.
    ///
    /// Tool times have a heavy tail: one that has lasted 30 s is likely to last
    /// minutes, and then bringing the program back is cheaper than its memory.
    fn default() -> Self {
        Self {
            decay: Decay::Exponential {
                half_life_ms: 1_000.0,
            },
            hold_ms: 30_000,
            restore: Restore::Waiting,
            extra: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    profile: Option<String>,
    decay: Option<String>,
    half_life_s: Option<f64>,
    base: Option<f64>,
    tick_ms: Option<u64>,
    hold_s: Option<f64>,
    restore: Option<String>,
    ageing_s: Option<f64>,
    extra: Option<Vec<String>>,
}

impl Config {
    /// The paper's: the weight halves every second, the shortest comes back first.
    pub fn paper() -> Self {
        Self {
            decay: Decay::Geometric {
                base: 2.0,
                tick_ms: 1000,
            },
            hold_ms: 0,
            restore: Restore::Shortest,
            extra: Vec::new(),
        }
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// `invalid-config`, naming the key: an unknown key, a value out of range, or a
    /// key that does not go with the chosen `decay` or `restore`.
    pub fn parse(json: &str) -> Result<Self, PolicyError> {
        let raw: Raw = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        let mut config = match raw.profile.as_deref() {
            None | Some("treadle") => Self::default(),
            Some("paper") => Self::paper(),
            Some(other) => return Err(choice("profile", other, "\"treadle\" or \"paper\"")),
        };
        config.decay = raw.decay(config.decay)?;
        config.restore = raw.restore(config.restore)?;
        if let Some(hold_s) = raw.hold_s {
            config.hold_ms = milliseconds("hold_s", hold_s, 0.0)? as u64;
        }
        config.extra = raw.extra.unwrap_or_default();
        Ok(config)
    }
}

impl Raw {
    fn decay(&self, start: Decay) -> Result<Decay, PolicyError> {
        let kind = self.decay.as_deref().unwrap_or(match start {
            Decay::None => "none",
            Decay::Exponential { .. } => "exponential",
            Decay::Geometric { .. } => "geometric",
        });
        let exponential = kind == "exponential";
        let geometric = kind == "geometric";
        belongs(
            "half_life_s",
            self.half_life_s.is_some(),
            exponential,
            "decay",
        )?;
        belongs("base", self.base.is_some(), geometric, "decay")?;
        belongs("tick_ms", self.tick_ms.is_some(), geometric, "decay")?;
        let (start_base, start_tick_ms) = match start {
            Decay::Geometric { base, tick_ms } => (Some(base), Some(tick_ms)),
            _ => (None, None),
        };
        match kind {
            "none" => Ok(Decay::None),
            "exponential" => {
                let start_s = match start {
                    Decay::Exponential { half_life_ms } => Some(half_life_ms / 1000.0),
                    _ => None,
                };
                let half_life_s = needed("half_life_s", self.half_life_s.or(start_s), kind)?;
                Ok(Decay::Exponential {
                    half_life_ms: milliseconds("half_life_s", half_life_s, 0.001)?,
                })
            }
            "geometric" => {
                let base = needed("base", self.base.or(start_base), kind)?;
                within("base", base, BASE_MIN, BASE_MAX)?;
                let tick_ms = needed("tick_ms", self.tick_ms.or(start_tick_ms), kind)?;
                within("tick_ms", tick_ms as f64, 1.0, SECONDS_MAX * 1000.0)?;
                Ok(Decay::Geometric { base, tick_ms })
            }
            other => Err(choice(
                "decay",
                other,
                "\"none\", \"exponential\" or \"geometric\"",
            )),
        }
    }

    fn restore(&self, start: Restore) -> Result<Restore, PolicyError> {
        let kind = self.restore.as_deref();
        belongs(
            "ageing_s",
            self.ageing_s.is_some(),
            kind == Some("ageing"),
            "restore",
        )?;
        match kind {
            None => Ok(start),
            Some("shortest") => Ok(Restore::Shortest),
            Some("waiting") => Ok(Restore::Waiting),
            Some("ageing") => {
                let ageing_s = needed("ageing_s", self.ageing_s, "ageing")?;
                Ok(Restore::Ageing {
                    ageing_ms: milliseconds("ageing_s", ageing_s, 0.0)? as u64,
                })
            }
            Some(other) => Err(choice(
                "restore",
                other,
                "\"waiting\", \"shortest\" or \"ageing\"",
            )),
        }
    }
}

fn milliseconds(key: &str, seconds: f64, min_s: f64) -> Result<f64, PolicyError> {
    within(key, seconds, min_s, SECONDS_MAX)?;
    Ok(seconds * 1000.0)
}

fn within(key: &str, value: f64, min: f64, max: f64) -> Result<(), PolicyError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} is {value}; give a number from {min} to {max}"
    )))
}

fn needed<T>(key: &str, value: Option<T>, kind: &str) -> Result<T, PolicyError> {
    value.ok_or_else(|| {
        PolicyError::invalid_config(format!("{key} is missing; \"{kind}\" needs it"))
    })
}

fn belongs(key: &str, given: bool, allowed: bool, chooser: &str) -> Result<(), PolicyError> {
    if allowed || !given {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} does not go with the chosen {chooser}; remove it or choose another {chooser}"
    )))
}

fn choice(key: &str, found: &str, choices: &str) -> PolicyError {
    PolicyError::invalid_config(format!("{key} is \"{found}\"; give {choices}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        let error = Config::parse(json).unwrap_err();
        assert_eq!(error.code, "invalid-config");
        error.message
    }

    #[test]
    fn profiles_and_their_defaults() {
        assert_eq!(Config::parse("{}"), Ok(Config::default()));
        assert_eq!(Config::parse(r#"{"profile":"paper"}"#), Ok(Config::paper()));
        let paced = Config::parse(r#"{"profile":"paper","tick_ms":250,"hold_s":1.5}"#).unwrap();
        assert_eq!(
            paced.decay,
            Decay::Geometric {
                base: 2.0,
                tick_ms: 250
            }
        );
        assert_eq!(paced.hold_ms, 1500);
    }

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"colour":1}"#, "colour"),
            (r#"{"profile":"x"}"#, "profile"),
            (r#"{"decay":"linear"}"#, "decay"),
            (
                r#"{"profile":"paper","decay":"exponential"}"#,
                "half_life_s",
            ),
            (r#"{"decay":"exponential","half_life_s":0}"#, "half_life_s"),
            (
                r#"{"decay":"exponential","half_life_s":1,"base":2}"#,
                "base",
            ),
            (r#"{"decay":"geometric","tick_ms":1}"#, "base"),
            (r#"{"decay":"geometric","base":1,"tick_ms":1}"#, "base"),
            (r#"{"decay":"geometric","base":2,"tick_ms":0}"#, "tick_ms"),
            (r#"{"hold_s":-1}"#, "hold_s"),
            (r#"{"restore":"newest"}"#, "restore"),
            (r#"{"restore":"ageing"}"#, "ageing_s"),
            (r#"{"ageing_s":1}"#, "ageing_s"),
        ] {
            let message = refusal(json);
            assert!(message.contains(key), "{json}: {message}");
        }
    }
}
