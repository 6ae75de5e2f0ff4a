//! The configuration of the policy.

/// Largest share of load that can be configured.
const SHARE_MAX: f64 = 100.0;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// How far a worker may be above the mean load and still take programs back, as a share of
        /// a worker.
        load_slack: f64 = 0.2, 0.0..=SHARE_MAX;
        /// Load that each further program of the same group counts as.
        spread: f64 = 0.05, 0.0..=SHARE_MAX;
        /// Load that a fully cached context outweighs when a step is routed.
        affinity: f64 = 0.5, 0.0..=SHARE_MAX;
        /// How far above the mean load a worker starts to move acting programs away.
        migrate_slack: f64 = 0.3, 0.0..=SHARE_MAX;
        /// How far a worker that steps together with others may be above their mean load before
        /// acting programs move from it to those.
        lockstep_slack: f64 = 0.1, 0.0..=SHARE_MAX;
        /// Maximum number of programs that one answer moves.
        moves_max: u32 = 8;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

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
