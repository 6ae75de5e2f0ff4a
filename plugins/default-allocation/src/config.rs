//! The configuration of the policy.

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Whether remaining units are distributed to actions that they make faster.
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
            (r#"{"elastic": 1}"#, "elastic"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
