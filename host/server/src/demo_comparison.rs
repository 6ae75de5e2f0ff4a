//! The console's view of a demo: several schedulers on the same agents, each in its own daemon,
//! side by side.

use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

/// The schedulers' results so far, side by side. Times are scaled.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct DemoComparison {
    /// One per scheduler; empty if the daemon is not part of a demo.
    pub arms: Vec<DemoArm>,
    /// Elapsed minutes.
    pub minute: f64,
    /// Total minutes.
    pub minutes: f64,
    /// Warm-up minutes, whose latencies are not counted.
    pub warmup_minutes: f64,
    /// Scaled seconds per real second.
    pub time_scale: f64,
    /// Description of the agents' work.
    pub workload: String,
}

/// One scheduler.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct DemoArm {
    /// `least-load`, `sticky` or `treadle`.
    pub name: String,
    /// URL of its daemon and console; absent before it has started and after it has ended.
    pub url: Option<String>,
    /// Whether it is the daemon that this response comes from.
    pub is_own: bool,
    /// Steps answered since the beginning.
    pub answered: u64,
    /// Steps per minute, over the last two.
    pub steps_per_min: f64,
    /// Share of prompt tokens found in caches, since the beginning.
    pub hit_rate: f64,
    /// Median time of a step after the warm-up, in seconds.
    pub step_p50_s: Option<f64>,
    /// 99th percentile of the time of a step after the warm-up, in seconds.
    pub step_p99_s: Option<f64>,
    /// Steps per minute over time.
    pub points: Vec<DemoPoint>,
}

/// Steps per minute at one time.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct DemoPoint {
    /// The end of the interval, in minutes since the beginning.
    pub minute: f64,
    /// Steps per minute within it.
    pub steps_per_min: f64,
}

/// A daemon's view of the demo that it is part of.
#[derive(Debug)]
pub struct DemoView {
    /// Its index among the arms.
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
