//! Statistics of the tools of each job. Caches are kept by how much longer a call is expected to
//! last.

use super::distribution::Distribution;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::Span;

/// Maximum number of tools per job with statistics; further ones are not recorded.
pub const TOOLS_MAX: usize = 256;
/// Maximum number of jobs with tool statistics; further ones are not recorded.
pub const TOOL_JOBS_MAX: usize = 4_096;

/// Statistics of one tool of a job.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ToolStatistics {
    /// Calls that ended.
    pub finished: u64,
    /// Number of those that failed.
    pub failed: u64,
    /// Total time of all calls, in microseconds.
    pub total_us: u64,
    /// The longest call, in microseconds.
    pub longest_us: u64,
    /// Distribution of their times, in milliseconds.
    #[serde(default, skip_serializing_if = "Distribution::is_empty")]
    pub times: Distribution,
}

/// Statistics of tools by job and tool.
pub type Tools = BTreeMap<Box<str>, BTreeMap<Box<str>, ToolStatistics>>;

/// Adds a call that took `time` to the statistics, within the limits.
pub(super) fn learn(tools: &mut Tools, job: &str, tool: &str, time: Span, ok: bool) {
    let has_room = tools.len() < TOOL_JOBS_MAX;
    if !has_room && !tools.contains_key(job) {
        return;
    }
    let of_job = tools.entry(job.into()).or_default();
    if of_job.len() >= TOOLS_MAX && !of_job.contains_key(tool) {
        return;
    }
    let known = of_job.entry(tool.into()).or_default();
    let took_us = time.micros();
    known.finished += 1;
    known.failed += u64::from(!ok);
    known.total_us = known.total_us.saturating_add(took_us);
    known.longest_us = known.longest_us.max(took_us);
    known.times.learn(took_us / 1_000);
}
