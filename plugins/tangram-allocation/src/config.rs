//! The configuration.

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Options that the first of those left to wait is tried with (`depth` in §4.2).
        depth: u32 = 2, 1..=8;
        /// Actions behind the candidates of a pool whose start is estimated one by one.
        horizon_rows: u32 = 128, 1..=8_192;
    }
}
