//! The configuration of the policy.

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Tolerance when numbers are compared, as a share of the reference.
        tolerance: f64 = 1e-6, 0.0..=1.0;
        /// Penalty for each thousand generated tokens.
        length_penalty: f64 = 0.0, 0.0..=1e3;
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::Config as _;

    use super::*;

    #[test]
    fn refusals_name_the_key() {
        for (json, key) in [
            (r#"{"tolerance": 2}"#, "tolerance"),
            (r#"{"length_penalty": -1}"#, "length_penalty"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
