//! The configuration.

/// Factors beyond this are a slip of the pen.
const FACTOR_MAX: f64 = 1_000_000.0;
/// Longest turn, an hour.
const TURN_MS_MAX: u64 = 3_600_000;

treadle_plugin::choice! {
    /// Which program comes back first.
    pub enum Restore {
        /// The one that has waited longest; within one turn the one with most to generate yet.
        Waiting = "waiting",
        /// The shorter context, as in eq. 10 of `ThunderAgent`.
        Shortest = "shortest",
    }
}

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// A cache is offloaded, or moved, when its tool call is expected to last longer than so
        /// many times the way out and back.
        hold: f64 = 1.0, 0.0..=FACTOR_MAX;
        /// Without a way out it is dropped when the call is expected to last longer than so many
        /// times what computing a whole worker's memory takes. An engine that computes a prompt
        /// goes on with its other requests meanwhile, more slowly: less than all of its memory is
        /// idle.
        drop: f64 = 0.8, 0.0..=FACTOR_MAX;
        /// What comes back first: the longest `waiting`, or the `shortest` context.
        restore: Restore = Restore::Waiting;
        /// Waits that differ by less are equal, in milliseconds; of these the program with most to
        /// generate yet comes back first.
        turn_ms: u64 = 1_000, 1..=TURN_MS_MAX;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

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
}
