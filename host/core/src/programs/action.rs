//! Actions: what programs do between their steps, as tool runners report it, and what is learnt of
//! the tools of each job. Caches are kept by how long a call is expected to last yet.

use crate::distribution::Distribution;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_model::Timestamp;

/// Actions of one program under way at once; further ones are not followed.
pub const ACTIONS_MAX: usize = 256;
/// Tools of one job that times are kept of; further ones are not followed.
pub const TOOLS_MAX: usize = 256;
/// Jobs that tool times are kept of; further ones are not followed.
pub const TOOL_JOBS_MAX: usize = 4_096;

/// What the ids of actions begin with that treadle runs, among those that runners report.
pub(crate) const OWN: &str = "treadle/";

/// The tool whose calls are programs that a program starts and waits for.
pub const SUBAGENT: &str = "subagent";

/// An action under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The tool.
    pub tool: Box<str>,
    /// When it began; when it is expected to, where treadle runs it and it waits.
    pub since: Timestamp,
    /// When it is expected to end, where treadle runs it and its client says how long that takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
}

/// What is known of one tool of a job.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ToolStatistics {
    /// Calls that ended.
    pub finished: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Time of all of them together, in microseconds.
    pub total_us: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
    /// All of them, in milliseconds.
    #[serde(default, skip_serializing_if = "Distribution::is_empty")]
    pub times: Distribution,
}

/// Statistics of tools by job and tool.
pub type Tools = BTreeMap<Box<str>, BTreeMap<Box<str>, ToolStatistics>>;

/// Takes one ended call into account, within the bounds.
pub(crate) fn learn(tools: &mut Tools, job: &str, action: &Action, now: Timestamp, ok: bool) {
    let has_room = tools.len() < TOOL_JOBS_MAX;
    if !has_room && !tools.contains_key(job) {
        return;
    }
    let of_job = tools.entry(job.into()).or_default();
    if of_job.len() >= TOOLS_MAX && !of_job.contains_key(&action.tool) {
        return;
    }
    let known = of_job.entry(action.tool.clone()).or_default();
    let took_us = now.since(action.since).micros();
    known.finished += 1;
    known.failed += u64::from(!ok);
    known.total_us = known.total_us.saturating_add(took_us);
    known.longest_us = known.longest_us.max(took_us);
    known.times.learn(took_us / 1_000);
}
