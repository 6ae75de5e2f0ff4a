//! An action as it was submitted.

use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// Maximum number of resources of one action.
pub const DEMANDS_MAX: usize = 8;
/// Maximum number of alternative amounts of one resource.
pub const OPTIONS_MAX: usize = 64;

/// What an action needs of one resource.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The resource.
    pub resource: Box<str>,
    /// The acceptable amounts, ascending; a single one if it is not elastic.
    pub options: Vec<u64>,
}

/// What to run, as far as the scheduler must know (§4.1).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ActionSpec {
    /// The program whose action it is, by its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Box<str>>,
    /// The RL run it belongs to.
    pub job: Box<str>,
    /// The tool or the reward: actions of the same job and kind are expected to last equally long.
    pub kind: Box<str>,
    /// The resources it uses, each at most once. At most one demand has more than one option.
    pub demands: Vec<Demand>,
    /// Its duration with each option of its elastic demand, or of its first demand if none is
    /// elastic; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<Span>,
    /// The service that its devices must hold while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<str>>,
    /// Run time after which it is stopped.
    pub run_max: Span,
    /// Time at which it is refused if it still waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<Timestamp>,
    /// It may be run again if it is unknown whether it ran.
    #[serde(default)]
    pub idempotent: bool,
    /// Chosen by its client: the same key and body are the same action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Box<str>>,
    /// Digest of the request body.
    pub body: Box<str>,
}

impl ActionSpec {
    /// The index of the demand for its key resource: the elastic one, otherwise the first.
    pub fn key_demand(&self) -> usize {
        let elastic = self.demands.iter().position(|d| d.options.len() > 1);
        elastic.unwrap_or(0)
    }
}
