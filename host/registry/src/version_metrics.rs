//! Prometheus metrics of policies, version by version.

use std::fmt::Write;
use treadle_model::tenant::MARK;
use treadle_policy::evaluator::VersionRow as Row;
use treadle_policy::evaluator::{LATENCY_BOUNDS_US, VersionStatistics};

type Reading = fn(&VersionStatistics) -> f64;

/// Name, kind, help text, value.
const FAMILIES: [(&str, &str, &str, Reading); 7] = [
    (
        "treadle_policy_version_calls_total",
        "counter",
        "Questions to a version.",
        |s| s.calls as f64,
    ),
    (
        "treadle_policy_version_rows_total",
        "counter",
        "Rows in the questions to a version.",
        |s| s.rows as f64,
    ),
    (
        "treadle_policy_version_compute_seconds_total",
        "counter",
        "Compute time of a version.",
        |s| s.compute_us as f64 / 1e6,
    ),
    (
        "treadle_policy_version_fallbacks_total",
        "counter",
        "Questions to a version that the built-in default answered instead.",
        |s| s.fallbacks as f64,
    ),
    (
        "treadle_policy_version_fallback_share",
        "gauge",
        "Share of a version's questions that the built-in default answered.",
        VersionStatistics::fallback_share,
    ),
    (
        "treadle_policy_version_memory_bytes",
        "gauge",
        "Linear memory of a version's instance.",
        |s| s.memory_bytes as f64,
    ),
    (
        "treadle_policy_version_restarts_total",
        "counter",
        "How often a version's instance was replaced.",
        |s| s.restarts as f64,
    ),
];

/// All versions in Prometheus' text format.
pub fn render_versions(versions: &[Row]) -> String {
    let mut text = String::new();
    if versions.is_empty() {
        return text;
    }
    for (name, kind, help, reading) in FAMILIES {
        head(&mut text, name, kind, help);
        for row in versions {
            let labels = labels(row);
            let _ = writeln!(text, "{name}{{{labels}}} {}", reading(&row.statistics));
        }
    }
    faults(&mut text, versions);
    latencies(&mut text, versions);
    text
}

fn faults(text: &mut String, versions: &[Row]) {
    let name = "treadle_policy_version_faults_total";
    head(text, name, "counter", "Faults of a version, by cause.");
    for row in versions {
        let labels = labels(row);
        for (cause, count) in &row.statistics.faults {
            let _ = writeln!(text, "{name}{{{labels},cause=\"{cause}\"}} {count}");
        }
    }
}

fn latencies(text: &mut String, versions: &[Row]) {
    let name = "treadle_policy_version_seconds";
    head(text, name, "histogram", "Response time of a version.");
    for row in versions {
        let labels = labels(row);
        let mut sum = 0;
        for (bound, count) in LATENCY_BOUNDS_US.iter().zip(row.statistics.latency_counts) {
            sum += count;
            let le = *bound as f64 / 1e6;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{le}\"}} {sum}");
        }
        let calls = row.statistics.calls;
        let seconds = row.statistics.compute_us as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {calls}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {seconds}");
        let _ = writeln!(text, "{name}_count{{{labels}}} {calls}");
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Names of policies are letters, digits and a few signs; uploads with others are refused.
fn labels(row: &Row) -> String {
    let (world, policy) = (row.world, &row.policy);
    let tenant = row.tenant.trim_matches(MARK);
    if tenant.is_empty() {
        return format!("world=\"{world}\",policy=\"{policy}\"");
    }
    format!("world=\"{world}\",policy=\"{policy}\",tenant=\"{tenant}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use treadle_model::{PolicyRef, World};

    #[test]
    fn every_version_has_its_rows_and_buckets_add_up() {
        let mut statistics = VersionStatistics::default();
        statistics.record_call(10, Duration::from_micros(3));
        statistics.record_call(10, Duration::from_millis(200));
        let policy = PolicyRef("fcfs-priority@1.0.0+0123456789ab".into());
        let row = Row {
            world: World::Priority,
            policy,
            tenant: "".into(),
            statistics,
        };
        let text = render_versions(std::slice::from_ref(&row));
        let labels = "world=\"priority\",policy=\"fcfs-priority@1.0.0+0123456789ab\"";
        let name = "treadle_policy_version";
        for row in [
            format!("{name}_calls_total{{{labels}}} 2"),
            format!("{name}_rows_total{{{labels}}} 20"),
            format!("{name}_seconds_bucket{{{labels},le=\"0.000002\"}} 0"),
            format!("{name}_seconds_bucket{{{labels},le=\"0.000005\"}} 1"),
            format!("{name}_seconds_bucket{{{labels},le=\"0.1\"}} 1"),
            format!("{name}_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
        ] {
            assert!(text.lines().any(|line| line == row), "{row}\n{text}");
        }
        assert_eq!(render_versions(&[]), "");
    }
}
