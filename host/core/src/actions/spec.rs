//! An action as it was submitted.

use serde::{Deserialize, Serialize};
use treadle_model::{Span, Timestamp};

/// Resources that one action draws from at most.
pub const DEMANDS_MAX: usize = 8;
/// Amounts of one resource that an action can do with, at most.
pub const OPTIONS_MAX: usize = 64;

/// What an action needs of one resource.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The resource.
    pub resource: Box<str>,
    /// The amounts that it can do with, ascending; one where it is not elastic.
    pub options: Vec<u64>,
}

/// What is to run, as far as the scheduler must know (§4.1).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ActionSpec {
    /// The program whose action it is, by its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Box<str>>,
    /// The RL run it belongs to.
    pub job: Box<str>,
    /// The tool or the reward: actions of a job and kind are taken to last equally long.
    pub kind: Box<str>,
    /// What it draws from, no resource twice. At most one of them has more than one option.
    pub demands: Vec<Demand>,
    /// How long it lasts with each option of its elastic demand, or of its first one where none is
    /// elastic; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<Span>,
    /// The service that its devices must hold while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<str>>,
    /// After this it is stopped.
    pub run_max: Span,
    /// When it is refused if it still waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<Timestamp>,
    /// It may be run again where nobody knows whether it ran.
    #[serde(default)]
    pub idempotent: bool,
    /// Chosen by its client: the same key and body are the same action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Box<str>>,
    /// Digest of what to run.
    pub body: Box<str>,
}

impl ActionSpec {
    /// The index of the demand that more of makes it faster: the elastic one, else the first.
    pub fn key_demand(&self) -> usize {
        let elastic = self.demands.iter().position(|d| d.options.len() > 1);
        elastic.unwrap_or(0)
    }
}
