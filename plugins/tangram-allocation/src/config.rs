//! The configuration.

treadle_plugin::config! {
    /// What the policy does.
    pub struct Config {
        /// Options that the first of those left to wait is tried with (`depth` in §4.2).
        depth: u32 = 2, 1..=8;
        /// Actions behind the candidates of a pool whose start is estimated one by one.
        horizon_rows: u32 = 128, 1..=8_192;
        /// Most units of an action where units come one by one: this many hundredths of the pool's
        /// units for each action that runs or waits there. 0 for no bound, as in the paper.
        share_percent: u32 = 100, 0..=10_000;
    }
}
