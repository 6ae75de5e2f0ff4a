//! The configuration and its keys.

use treadle_plugin::PolicyError;

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;
/// Continuum's own threshold is of this order, and so are most tool calls.
const TTL_S: f64 = 2.0;
const QUEUE_S: f64 = 2.0;

treadle_plugin::choice! {
    /// The source of the time to live.
    pub enum Kind {
        /// The same for all calls.
        Fixed = "fixed",
        /// From what a pin costs and saves.
        Learnt = "learnt",
    }
}

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Keys {
        /// How long a cache is pinned: for a `fixed` time, or as `learnt`, while it is expected to
        /// cost less than it saves.
        ttl: Kind = Kind::Fixed;
        /// `fixed` only: time into a tool call for which a cache is pinned, in seconds; null for 2.
        ttl_s: Option<f64> = None, 0.0..=SECONDS_MAX;
        /// `learnt` only: time that a program without its place waits for another, in addition to
        /// computing its cache, in seconds; null for 2.
        queue_s: Option<f64> = None, 0.0..=SECONDS_MAX;
    }
}

/// How long a cache is pinned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ttl {
    /// For a fixed time, in milliseconds.
    Fixed { ttl_ms: u64 },
    /// As long as that is expected to cost less than it saves.
    Learnt {
        /// The cost of losing a placement in addition to recomputing the cache.
        queue_ms: f64,
    },
}

impl Ttl {
    /// The configuration from these keys.
    ///
    /// # Errors
    /// `invalid-config`, naming a key that does not apply to the chosen `ttl`.
    pub(crate) fn of(keys: &Keys) -> Result<Self, PolicyError> {
        match keys.ttl {
            Kind::Fixed => {
                absent("queue_s", keys.queue_s, "fixed")?;
                let ttl_ms = (keys.ttl_s.unwrap_or(TTL_S) * 1_000.0) as u64;
                Ok(Self::Fixed { ttl_ms })
            }
            Kind::Learnt => {
                absent("ttl_s", keys.ttl_s, "learnt")?;
                let queue_ms = keys.queue_s.unwrap_or(QUEUE_S) * 1_000.0;
                Ok(Self::Learnt { queue_ms })
            }
        }
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

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

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
        ] {
            let error = Keys::parse(json)
                .and_then(|keys| Ttl::of(&keys))
                .unwrap_err();
            assert_eq!(error.code, "invalid-config");
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
