//! The result of the workload under one scheduler.

use super::run_counters::Measured;
use treadle_core::Mode;

/// The schedulers, in display order.
pub(super) const VARIANTS: [Variant; 3] = [
    Variant {
        mode: Mode::LeastLoad,
        name: "least-load",
        key: "least_load",
    },
    Variant {
        mode: Mode::Sticky,
        name: "sticky",
        key: "sticky",
    },
    Variant {
        mode: Mode::ProgramAware,
        name: "treadle",
        key: "treadle",
    },
];

/// One scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Variant {
    pub(super) mode: Mode,
    /// Name for people.
    pub(super) name: &'static str,
    /// Name in figures.
    pub(super) key: &'static str,
}

/// The result of the workload under one scheduler. Times are scaled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) variant: Variant,
    pub(super) steps_per_min: f64,
    pub(super) step_p50_s: f64,
    pub(super) step_p95_s: f64,
    pub(super) step_p99_s: f64,
    /// Share of prompt tokens found in caches.
    pub(super) hit_rate: f64,
    pub(super) failures: u64,
    pub(super) first_failure: Option<String>,
    /// Number of pauses since the start, warm-up included.
    pub(super) pauses: u64,
    /// Number of restores since the start, if counted.
    pub(super) restores: Option<u64>,
    /// Number of restores on another engine.
    pub(super) moves: u64,
    /// 99th percentile of the agents' oversleeping, in real milliseconds; 0 in virtual time.
    pub(super) lag_p99_ms: Option<f64>,
}

impl Outcome {
    /// Builds the outcome from the measurements of a run over HTTP.
    pub(super) fn over_http(
        variant: Variant,
        mut seen: Measured,
        minutes: f64,
        counters: treadle_core::programs::Counters,
    ) -> Self {
        Self {
            variant,
            steps_per_min: seen.steps as f64 / minutes,
            step_p50_s: seen.latencies.percentile(0.50).as_secs_f64(),
            step_p95_s: seen.latencies.percentile(0.95).as_secs_f64(),
            step_p99_s: seen.latencies.percentile(0.99).as_secs_f64(),
            hit_rate: seen.prompt.hit_rate(),
            failures: seen.failures,
            first_failure: seen.first_failure,
            pauses: counters.pauses,
            restores: Some(counters.restores),
            moves: counters.moves,
            lag_p99_ms: Some(seen.lag.percentile_ms(0.99)),
        }
    }
}
