//! The configuration.

/// Longest time that can be configured, 30 days.
const SECONDS_MAX: f64 = 2_592_000.0;

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Wait from which a pool is kept for an action, in seconds.
        reserve_s: f64 = 30.0, 0.0..=SECONDS_MAX;
        /// Whether units left over are shared out.
        elastic: bool = true;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"reserve_s": -1}"#, "reserve_s"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
