//! The configuration of the policy.

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Number of options that are tried for the first action left waiting (`depth` in §4.2).
        depth: u32 = 2, 1..=8;
        /// Number of actions behind a pool's candidates whose start is estimated one by one.
        horizon_rows: u32 = 128, 1..=8_192;
        /// Maximum units of an action in pools without chunks, as a percentage of its equal share:
        /// the pool's units divided by the actions that run or wait there. 0 for no limit, as in
        /// the paper.
        share_percent: u32 = 100, 0..=10_000;
    }
}
