//! The configuration of the policy.

/// Largest allowed factor.
const FACTOR_MAX: f64 = 1_000_000.0;
/// Longest turn, an hour.
const TURN_MS_MAX: u64 = 3_600_000;

treadle_plugin::choice! {
    /// Which program is restored first.
    pub enum Restore {
        /// The one that has waited longest; among equal waits the one with most tokens left to
        /// generate.
        Waiting = "waiting",
        /// The shorter context, as in eq. 10 of `ThunderAgent`.
        Shortest = "shortest",
    }
}

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// A cache is offloaded, or moved, if its tool call is expected to last longer than this
        /// factor times the transfer out and back.
        hold: f64 = 1.0, 0.0..=FACTOR_MAX;
        /// A cache that can't be transferred is dropped if the call is expected to last longer than
        /// this factor times the time to compute a whole worker's memory. Below 1, because an
        /// engine that computes a prompt continues its other requests, more slowly.
        drop: f64 = 0.8, 0.0..=FACTOR_MAX;
        /// Which program is restored first: the longest `waiting`, or the one with the `shortest`
        /// context.
        restore: Restore = Restore::Waiting;
        /// Waits that differ by less count as equal, in milliseconds; among these the program with
        /// most tokens left to generate is restored first.
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
