//! Actions: what programs do between their steps, as tool runners report it.

use serde::{Deserialize, Serialize};
use treadle_model::Timestamp;

/// Maximum number of running actions per program; further ones are not tracked.
pub const ACTIONS_MAX: usize = 256;

/// Prefix of the ids of actions that treadle runs, among those that runners report.
pub(crate) const OWN: &str = "treadle/";

/// The tool whose calls are programs that a program starts and waits for.
pub const SUBAGENT: &str = "subagent";

/// A running action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The tool.
    pub tool: Box<str>,
    /// When it began; for an action that treadle runs and that waits, when it is expected to begin.
    pub since: Timestamp,
    /// When it is expected to end, if treadle runs it and its client gave a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
}
