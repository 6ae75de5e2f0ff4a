//! `[metrics]`: metrics for Prometheus.

use super::section::section;

section! {
    /// Metrics for Prometheus.
    MetricsConfig in "metrics" {
        /// Whether `GET /metrics` is served.
        enabled: bool = true, "";
        fixed {
            /// How long a series that no longer changes is kept, so that the series of ended jobs
            /// and workers do not take memory.
            series_idle_s: u64 = 3600, "seconds", 60 ..= 2_592_000;
        }
    }
}
