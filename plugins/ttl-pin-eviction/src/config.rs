//! The configuration and its JSON form.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `ttl` | `"fixed"` or `"learnt"` | `"fixed"` |
//! | `ttl_s` | fixed only: time into a tool call for which a cache is pinned | 2 |
//! | `queue_s` | learnt only: time that a program which lost its place waits for another, beside computing its cache | 2 |
//! | `extra` | names of the extra columns; `"learnt"` needs `idle-ms`, `soonest-ms` and `prefill-ms` | none |

use serde::Deserialize;
use treadle_plugin::PolicyError;

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;
/// Continuum's own threshold is of this order, and so are most tool calls.
const TTL_S: f64 = 2.0;
const QUEUE_S: f64 = 2.0;

/// For how long a cache is pinned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ttl {
    /// For so many milliseconds.
    Fixed { ttl_ms: u64 },
    /// As long as that is expected to cost less than it saves.
    Learnt {
        /// The cost of losing a placement beside recomputing the cache.
        queue_ms: f64,
        columns: Named,
    },
}

/// Which of the extra columns are which, all of them in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) idle: usize,
    pub(crate) soonest: usize,
    pub(crate) prefill: usize,
}

/// What the policy does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) ttl: Ttl,
    /// Extra columns that calls carry.
    pub(crate) extra_columns: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    ttl: Option<String>,
    ttl_s: Option<f64>,
    queue_s: Option<f64>,
    #[serde(default)]
    extra: Vec<String>,
}

impl Config {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// `invalid-config`, naming the key: an unknown key, a value out of range, a key
    /// that does not go with the chosen `ttl`, or a column that it needs.
    pub(crate) fn parse(json: &str) -> Result<Self, PolicyError> {
        let raw: Raw = serde_json::from_str(json)
            .map_err(|error| PolicyError::invalid_config(error.to_string()))?;
        let ttl = match raw.ttl.as_deref() {
            None | Some("fixed") => raw.fixed()?,
            Some("learnt") => raw.learnt()?,
            Some(other) => {
                let told = format!("ttl is \"{other}\"; give \"fixed\" or \"learnt\"");
                return Err(PolicyError::invalid_config(told));
            }
        };
        Ok(Self {
            ttl,
            extra_columns: raw.extra.len(),
        })
    }
}

impl Raw {
    fn fixed(&self) -> Result<Ttl, PolicyError> {
        absent("queue_s", self.queue_s, "fixed")?;
        let ttl_ms = milliseconds("ttl_s", self.ttl_s.unwrap_or(TTL_S))? as u64;
        Ok(Ttl::Fixed { ttl_ms })
    }

    fn learnt(&self) -> Result<Ttl, PolicyError> {
        absent("ttl_s", self.ttl_s, "learnt")?;
        Ok(Ttl::Learnt {
            queue_ms: milliseconds("queue_s", self.queue_s.unwrap_or(QUEUE_S))?,
            columns: Named {
                idle: self.column("idle-ms")?,
                soonest: self.column("soonest-ms")?,
                prefill: self.column("prefill-ms")?,
            },
        })
    }

    fn column(&self, name: &str) -> Result<usize, PolicyError> {
        let found = self.extra.iter().position(|known| known == name);
        found.ok_or_else(|| {
            PolicyError::invalid_config(format!(
                "extra lacks \"{name}\", which the ttl \"learnt\" needs; give \
                 [\"idle-ms\", \"soonest-ms\", \"prefill-ms\"]"
            ))
        })
    }
}

fn absent(key: &str, value: Option<f64>, ttl: &str) -> Result<(), PolicyError> {
    if value.is_none() {
        return Ok(());
    }
    Err(PolicyError::invalid_config(format!(
        "{key} does not go with the ttl \"{ttl}\"; remove it or choose the other ttl"
    )))
}

fn milliseconds(key: &str, seconds: f64) -> Result<f64, PolicyError> {
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        return Ok(seconds * 1_000.0);
    }
    Err(PolicyError::invalid_config(format!(
        "{key} is {seconds}; give a number from 0 to {SECONDS_MAX}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"colour": 1}"#, "colour"),
            (r#"{"ttl": "long"}"#, "ttl"),
            (r#"{"ttl_s": -1}"#, "ttl_s"),
            (r#"{"ttl_s": 1e9}"#, "ttl_s"),
            (r#"{"queue_s": 1}"#, "queue_s"),
            (r#"{"ttl": "learnt", "ttl_s": 1}"#, "ttl_s"),
            (r#"{"ttl": "learnt", "extra": ["idle-ms"]}"#, "soonest-ms"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert_eq!(error.code, "invalid-config");
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let json = r#"{"ttl": "learnt", "queue_s": 0.5,
            "extra": ["prefill-ms", "back-ms", "idle-ms", "soonest-ms"]}"#;
        let config = Config::parse(json).unwrap();
        let columns = Named {
            idle: 2,
            soonest: 3,
            prefill: 0,
        };
        let queue_ms = 500.0;
        assert_eq!(config.ttl, Ttl::Learnt { queue_ms, columns });
        assert_eq!(config.extra_columns, 4);
    }
}
