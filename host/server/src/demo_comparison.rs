//! What the console shows of a demo: several schedulers at work on the same agents, each in a daemon
//! of its own, side by side.

use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

/// Schedulers side by side, as far as they are. Times are scaled.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct DemoComparison {
    /// One for each scheduler; none where the daemon is part of no demo.
    pub arms: Vec<DemoArm>,
    /// Minutes so far.
    pub minute: f64,
    /// Minutes in all.
    pub minutes: f64,
    /// The first of them, of which no latencies are kept.
    pub warmup_minutes: f64,
    /// Scaled seconds in a real one.
    pub time_scale: f64,
    /// What the agents do, for people.
    pub workload: String,
}

/// One scheduler.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct DemoArm {
    /// `least-load`, `sticky` or `treadle`.
    pub name: String,
    /// Its daemon, whose console is there; none before it has started and once it has ended.
    pub url: Option<String>,
    /// Whether that is the daemon that was asked.
    pub is_own: bool,
    /// Steps answered since the beginning.
    pub answered: u64,
    /// Steps per minute, over the last two.
    pub steps_per_min: f64,
    /// Share of prompt tokens found in caches, since the beginning.
    pub hit_rate: f64,
    /// Median time of a step after the warm-up, in seconds.
    pub step_p50_s: Option<f64>,
    /// The 99th percentile of the same.
    pub step_p99_s: Option<f64>,
    /// Steps per minute over time.
    pub points: Vec<DemoPoint>,
}

/// Steps per minute at one time.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct DemoPoint {
    /// The end of the stretch that it is of, in minutes since the beginning.
    pub minute: f64,
    /// Steps per minute within it.
    pub steps_per_min: f64,
}

/// A daemon's view of the demo that it is part of.
#[derive(Debug)]
pub struct DemoView {
    /// Its place among the arms.
    pub place: usize,
    /// How all arms are doing.
    pub comparison: watch::Receiver<DemoComparison>,
}

impl DemoView {
    /// How all arms are doing, the daemon's own marked.
    pub(crate) fn show(&self) -> DemoComparison {
        let mut comparison = self.comparison.borrow().clone();
        if let Some(arm) = comparison.arms.get_mut(self.place) {
            arm.is_own = true;
        }
        comparison
    }
}
