//! `[metrics]`: what is counted for Prometheus.

use super::section::section;

section! {
    /// What is counted for Prometheus.
    MetricsConfig in "metrics" {
        /// Whether `GET /metrics` answers.
        enabled: bool = true, "";
        fixed {
            /// How long a series stays that no longer changes, so that the series of ended jobs and
            /// workers take no memory.
            series_idle_s: u64 = 3600, "seconds", 60 ..= 2_592_000;
        }
    }
}
