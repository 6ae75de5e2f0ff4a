//! The configuration and its keys. The profile `paper` is geometric with base 2 and a tick of
//! 1000 ms, no hold, shortest first.

use treadle_plugin::PolicyError;

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;
/// Smallest base: below, rounding could exceed what one tick changes.
const BASE_MIN: f64 = 1.001;
const BASE_MAX: f64 = 1e6;
/// Longest tick, 30 days.
const TICK_MS_MAX: u64 = 2_592_000_000;

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

/// Which waiting program is restored first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// Reasoning first, then the shorter context (eq. 10).
    Shortest,
    /// Reasoning first, then the longest waiting, then the shorter context.
    Waiting,
    /// As `Shortest`, but programs that have waited `ageing_ms` go first, the longest waiting
    /// first.
    Ageing {
        /// The wait after which programs go first.
        ageing_ms: u64,
    },
}

/// Configuration of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How weights decay.
    pub decay: Decay,
    /// Time into a tool call before the decay starts.
    pub hold_ms: u64,
    /// Which waiting program is restored first.
    pub restore: Restore,
}

impl Default for Config {
    /// treadle's own settings: a placement lasts through tool calls of usual length, then ends
    /// quickly; the longest waiting program is restored first.
    ///
    /// Tool times have a heavy tail: one that has lasted 30 s is likely to last minutes, and then
    /// restoring the program is cheaper than its memory.
    fn default() -> Self {
        Self {
            decay: Decay::Exponential {
                half_life_ms: 1_000.0,
            },
            hold_ms: 30_000,
            restore: Restore::Waiting,
        }
    }
}

treadle_plugin::choice! {
    /// The source of default values.
    pub enum Profile {
        /// treadle's own.
        Treadle = "treadle",
        /// The paper's.
        Paper = "paper",
    }
}

treadle_plugin::choice! {
    /// How weights decay.
    pub enum DecayKind {
        /// Not at all.
        None = "none",
        /// In continuous time.
        Exponential = "exponential",
        /// In ticks.
        Geometric = "geometric",
    }
}

treadle_plugin::choice! {
    /// Which waiting program is restored first.
    pub enum RestoreKind {
        /// The one that has waited longest.
        Waiting = "waiting",
        /// The one with the shortest context.
        Shortest = "shortest",
        /// The shortest, and before it any that has waited long.
        Ageing = "ageing",
    }
}

treadle_plugin::config! {
    /// The keys of the configuration. A key that is null has the profile's value.
    pub struct Keys {
        /// Source of the default values: `treadle`, or the `paper`'s own settings.
        profile: Profile = Profile::Treadle;
        /// How the weight of a program falls with the time in its tool call: `none`,
        /// `exponential` or `geometric`.
        decay: Option<DecayKind> = None;
        /// `exponential` only: time in which the weight halves, in seconds.
        half_life_s: Option<f64> = None, 0.001..=SECONDS_MAX;
        /// `geometric` only: the weight is divided by this at each tick.
        base: Option<f64> = None, BASE_MIN..=BASE_MAX;
        /// `geometric` only: the length of a tick, in milliseconds.
        tick_ms: Option<u64> = None, 1..=TICK_MS_MAX;
        /// Time into a tool call before the decay starts, in seconds.
        hold_s: Option<f64> = None, 0.0..=SECONDS_MAX;
        /// Which program is restored first: the longest `waiting`, the `shortest` context, or, with
        /// `ageing`, the shortest after any that has waited long.
        restore: Option<RestoreKind> = None;
        /// `ageing` only: wait after which programs go first, in seconds.
        ageing_s: Option<f64> = None, 0.0..=SECONDS_MAX;
    }
}

impl Config {
    /// The paper's settings: the weight halves every second, the shortest context is restored
    /// first.
    pub fn paper() -> Self {
        Self {
            decay: Decay::Geometric {
                base: 2.0,
                tick_ms: 1000,
            },
            hold_ms: 0,
            restore: Restore::Shortest,
        }
    }

    /// The configuration from these keys.
    ///
    /// # Errors
    /// `invalid-config`, naming a key that does not apply to the chosen `decay` or `restore`, or
    /// that these require.
    pub fn of(keys: &Keys) -> Result<Self, PolicyError> {
        let mut config = match keys.profile {
            Profile::Treadle => Self::default(),
            Profile::Paper => Self::paper(),
        };
        config.decay = keys.decay(config.decay)?;
        config.restore = keys.restore(config.restore)?;
        if let Some(hold_s) = keys.hold_s {
            config.hold_ms = (hold_s * 1_000.0) as u64;
        }
        Ok(config)
    }
}

impl Keys {
    fn decay(&self, start: Decay) -> Result<Decay, PolicyError> {
        let kind = self.decay.unwrap_or(match start {
            Decay::None => DecayKind::None,
            Decay::Exponential { .. } => DecayKind::Exponential,
            Decay::Geometric { .. } => DecayKind::Geometric,
        });
        let exponential = kind == DecayKind::Exponential;
        let geometric = kind == DecayKind::Geometric;
        for (key, given, belongs) in [
            ("half_life_s", self.half_life_s.is_some(), exponential),
            ("base", self.base.is_some(), geometric),
            ("tick_ms", self.tick_ms.is_some(), geometric),
        ] {
            belongs_to(key, given, belongs, "decay")?;
        }
        Ok(match kind {
            DecayKind::None => Decay::None,
            DecayKind::Exponential => {
                let start_ms = match start {
                    Decay::Exponential { half_life_ms } => Some(half_life_ms),
                    _ => None,
                };
                let given_ms = self.half_life_s.map(|seconds| seconds * 1_000.0);
                let half_life_ms = needed("half_life_s", given_ms.or(start_ms), "exponential")?;
                Decay::Exponential { half_life_ms }
            }
            DecayKind::Geometric => {
                let (start_base, start_tick_ms) = match start {
                    Decay::Geometric { base, tick_ms } => (Some(base), Some(tick_ms)),
                    _ => (None, None),
                };
                Decay::Geometric {
                    base: needed("base", self.base.or(start_base), "geometric")?,
                    tick_ms: needed("tick_ms", self.tick_ms.or(start_tick_ms), "geometric")?,
                }
            }
        })
    }

    fn restore(&self, start: Restore) -> Result<Restore, PolicyError> {
        let ages = self.restore == Some(RestoreKind::Ageing);
        belongs_to("ageing_s", self.ageing_s.is_some(), ages, "restore")?;
        Ok(match self.restore {
            None => start,
            Some(RestoreKind::Shortest) => Restore::Shortest,
            Some(RestoreKind::Waiting) => Restore::Waiting,
            Some(RestoreKind::Ageing) => Restore::Ageing {
                ageing_ms: (needed("ageing_s", self.ageing_s, "ageing")? * 1_000.0) as u64,
            },
        })
    }
}

fn needed<T>(key: &str, value: Option<T>, kind: &str) -> Result<T, PolicyError> {
    value.ok_or_else(|| {
        PolicyError::invalid_config(format!("{key} is missing; \"{kind}\" needs it"))
    })
}

fn belongs_to(key: &str, given: bool, allowed: bool, chooser: &str) -> Result<(), PolicyError> {
    if allowed || !given {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} does not go with the chosen {chooser}; remove it or choose another {chooser}"
    )))
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    fn parse(json: &str) -> Result<Config, PolicyError> {
        Config::of(&Keys::parse(json)?)
    }

    fn refusal(json: &str) -> String {
        let error = parse(json).unwrap_err();
        assert_eq!(error.code, "invalid-config");
        error.message
    }

    #[test]
    fn profiles_and_their_defaults() {
        assert_eq!(parse("{}"), Ok(Config::default()));
        assert_eq!(parse(r#"{"profile":"paper"}"#), Ok(Config::paper()));
        let paced = parse(r#"{"profile":"paper","tick_ms":250,"hold_s":1.5}"#).unwrap();
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
