//! Statistics of versions of policies, and reports of their checks, for clients.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use treadle_policy::evaluator::{LATENCY_BOUNDS_US, VersionStatistics};
use treadle_registry::{Inspection, LoggedLine, SmokeTiming, UploadRefusal};
use utoipa::ToSchema;

/// Outcomes of the questions to one version.
#[derive(Serialize, ToSchema)]
pub(super) struct VersionFigures {
    /// Questions to this version.
    calls: u64,
    /// Rows of these questions.
    rows: u64,
    /// Questions that a built-in default answered instead.
    fallbacks: u64,
    /// Questions that it left to the built-in default.
    not_supported: u64,
    /// Faults by kind.
    faults: BTreeMap<&'static str, u64>,
    /// Its latest fault.
    latest_fault: Option<String>,
    /// Its compute time, in microseconds.
    compute_us: u64,
    /// Its slowest answer, in microseconds.
    slowest_us: u64,
    /// Median time of its latest 512 answers, in microseconds; null before its first.
    p50_us: Option<u64>,
    /// 99th percentile of the time of its latest 512 answers, in microseconds.
    p99_us: Option<u64>,
    /// Time limit of an answer, in milliseconds, after which the built-in default answers; that of
    /// questions that scheduling waits for, if its world has any.
    deadline_ms: u64,
    /// Histogram of latencies: answers within each of `latency_bounds_us`, and beyond the last.
    latency_counts: Vec<u64>,
    /// Upper bounds of `latency_counts`, in microseconds.
    latency_bounds_us: Vec<u64>,
    /// Linear memory after its latest answer.
    memory_bytes: usize,
    /// How often it was restarted.
    restarts: u64,
}

impl VersionFigures {
    /// The figures of a version with this time limit.
    pub(super) fn of(version: &VersionStatistics, deadline_ms: u64) -> Self {
        Self {
            calls: version.calls,
            rows: version.rows,
            fallbacks: version.fallbacks,
            not_supported: version.not_supported,
            faults: version.faults.clone(),
            latest_fault: version.latest_fault.clone(),
            compute_us: version.compute_us,
            slowest_us: version.slowest_us,
            p50_us: version.latest_percentile_us(0.5),
            p99_us: version.latest_percentile_us(0.99),
            deadline_ms,
            latency_counts: version.latency_counts.to_vec(),
            latency_bounds_us: LATENCY_BOUNDS_US.to_vec(),
            memory_bytes: version.memory_bytes,
            restarts: version.restarts,
        }
    }
}

/// The report of the checks of an upload.
#[derive(Serialize, ToSchema)]
pub(super) struct CheckReport {
    /// SHA-256 of the upload, in hexadecimal.
    digest: String,
    /// The world it targets.
    world: String,
    /// Its name.
    name: String,
    /// Its version.
    version: String,
    /// What it does, in a line.
    summary: String,
    /// Functions of its world that it answers.
    functions: Vec<String>,
    /// Columns that it asks for beyond those of its world.
    columns: Vec<String>,
    /// A JSON Schema of its configuration, as text; empty if it has none.
    config_schema: String,
    /// Tools that built it, as far as it declares them.
    producers: Vec<String>,
    /// Interfaces that it imports.
    imports: Vec<String>,
    /// Interfaces that it exports.
    exports: Vec<String>,
    /// Time to compile it.
    compile_ms: u64,
    /// How long the calls of the trial run took.
    smoke: Vec<TrialCall>,
}

impl From<Inspection> for CheckReport {
    fn from(of: Inspection) -> Self {
        let said = of.description;
        Self {
            digest: of.digest,
            world: of.world,
            name: said.name,
            version: said.version,
            summary: said.summary,
            functions: said.functions,
            columns: said.columns,
            config_schema: said.config_schema,
            producers: of.producers,
            imports: of.imports,
            exports: of.exports,
            compile_ms: of.compile_ms,
            smoke: of.smoke.into_iter().map(Into::into).collect(),
        }
    }
}

/// A call of the trial run.
#[derive(Serialize, ToSchema)]
struct TrialCall {
    /// The function.
    call: &'static str,
    /// Rows of the call.
    rows: usize,
    /// The fastest of five calls, in nanoseconds.
    best_ns: u64,
}

impl From<SmokeTiming> for TrialCall {
    fn from(of: SmokeTiming) -> Self {
        let SmokeTiming {
            call,
            rows,
            best_ns,
        } = of;
        Self {
            call,
            rows,
            best_ns,
        }
    }
}

/// The check that an upload failed.
#[derive(Serialize, ToSchema)]
pub(super) struct CheckFailure {
    /// Stable, lower-case words joined by hyphens.
    code: &'static str,
    /// What is wrong.
    what: String,
    /// Where in the upload: a byte, a section, an import, a call.
    r#where: String,
    /// What to do about it.
    remedy: String,
}

impl From<&UploadRefusal> for CheckFailure {
    fn from(of: &UploadRefusal) -> Self {
        Self {
            code: of.code,
            what: of.what.clone(),
            r#where: of.place.clone(),
            remedy: of.remedy.clone(),
        }
    }
}

/// A line that a policy wrote.
#[derive(Serialize, ToSchema)]
pub(super) struct PolicyLogLine {
    /// Counts the lines of the policy, from 1.
    number: u64,
    /// The time of the decision during which it was written, in milliseconds.
    now_ms: u64,
    /// trace, debug, info, warn or error.
    #[schema(value_type = String)]
    level: Value,
    /// The text, which may be cut.
    message: String,
    /// Lines that were dropped before this one because of the rate limit.
    dropped_before: u64,
}

impl From<LoggedLine> for PolicyLogLine {
    fn from(of: LoggedLine) -> Self {
        let LoggedLine { number, line } = of;
        Self {
            number,
            now_ms: line.now_ms,
            // A word.
            level: serde_json::to_value(line.level).unwrap_or_default(),
            message: line.message,
            dropped_before: line.dropped_before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn json_of(value: impl Serialize) -> Value {
        serde_json::to_value(value).expect("it has a JSON form")
    }

    #[test]
    fn a_version_has_its_percentiles_and_its_deadline_beside_what_is_counted() {
        let mut version = VersionStatistics::default();
        for us in [4, 6, 800] {
            version.record_call(10, Duration::from_micros(us));
        }
        let mut shown = json_of(VersionFigures::of(&version, 2));
        for (field, expected) in [
            ("p50_us", json!(6)),
            ("p99_us", json!(800)),
            ("deadline_ms", json!(2)),
            ("latency_bounds_us", json!(LATENCY_BOUNDS_US)),
        ] {
            let fields = shown.as_object_mut().expect("an object");
            assert_eq!(fields.remove(field), Some(expected), "{field}");
        }
        assert_eq!(shown, json_of(&version));
    }
}
