//! Histograms of durations for Prometheus.

use crate::Exposition;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds, in seconds.
const BUCKETS_S: [f64; 12] = [
    0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 3_600.0,
];

/// A histogram of durations, from a millisecond to an hour.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS_S.len()],
    sum_us: AtomicU64,
    count: AtomicU64,
}

impl Histogram {
    /// Records a duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BUCKETS_S.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Renders its rows with these labels, after the head of the metric `name`.
    pub fn render(&self, text: &mut Exposition, name: &str, labels: &str) {
        let bucket = format!("{name}_bucket");
        let within = |bound: &str| match labels {
            "" => format!("le=\"{bound}\""),
            labels => format!("{labels},le=\"{bound}\""),
        };
        let mut sum = 0;
        for (bound, count) in BUCKETS_S.iter().zip(&self.buckets) {
            sum += count.load(Ordering::Relaxed);
            text.row(&bucket, &within(&bound.to_string()), sum);
        }
        let count = self.count.load(Ordering::Relaxed);
        text.row(&bucket, &within("+Inf"), count);
        let sum_s = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        text.row(&format!("{name}_sum"), labels, sum_s);
        text.row(&format!("{name}_count"), labels, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_what_is_longer_than_all_of_them_counts() {
        let histogram = Histogram::default();
        for ms in [1, 300, 7_200_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut text = Exposition::default();
        histogram.render(&mut text, "t", "part=\"queue\"");
        let text = text.into_string();
        for row in [
            "t_bucket{part=\"queue\",le=\"0.001\"} 1",
            "t_bucket{part=\"queue\",le=\"0.5\"} 2",
            "t_bucket{part=\"queue\",le=\"3600\"} 2",
            "t_bucket{part=\"queue\",le=\"+Inf\"} 3",
            "t_sum{part=\"queue\"} 7200.301",
            "t_count{part=\"queue\"} 3",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}: {text}");
        }
    }
}
