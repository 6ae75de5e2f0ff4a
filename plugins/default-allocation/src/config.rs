//! The configuration.

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
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
            (r#"{"elastic": 1}"#, "elastic"),
            (r#"{"colour": 1}"#, "colour"),
        ] {
            let error = Config::parse(json).unwrap_err();
            assert!(error.message.contains(key), "{json}: {error}");
        }
    }
}
