//! What a trainer does to one engine by itself, by the engine's own control protocol.

use serde::{Deserialize, Serialize};

/// A call of a trainer to an engine, as far as it concerns the engine's weights.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainerCall {
    /// Pause generation.
    Pause {
        /// treadle makes the call, because the trainer does not.
        own: bool,
    },
    /// Begin an update that comes in parts.
    Begin,
    /// A part of the weights, or their name.
    Part {
        /// The version's name, if the call has it.
        name: Option<Box<str>>,
    },
    /// The update that was begun is complete.
    End {
        /// The version's name, if the call has it.
        name: Option<Box<str>>,
    },
    /// Whole weights in one call.
    Load {
        /// The version's name, if the call has it.
        name: Option<Box<str>>,
    },
    /// Generate again. treadle makes this call, once the engine has proven what it has.
    Resume,
}

impl TrainerCall {
    /// The version's name, if the call has it.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Part { name } | Self::End { name } | Self::Load { name } => name.as_deref(),
            Self::Pause { .. } | Self::Begin | Self::Resume => None,
        }
    }
}

/// How much of an engine's weights a trainer has replaced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Nothing.
    #[default]
    Nothing,
    /// An update has begun and has not ended.
    Open,
    /// All that the trainer had to send, as far as the calls show.
    All,
}

/// What a trainer is doing to an engine.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trainer {
    /// Its call that has not ended.
    pub call: Option<TrainerCall>,
    /// What it has replaced.
    pub extent: Extent,
    /// The engine is to generate again.
    pub resumes: bool,
    /// treadle paused the engine for it.
    pub paused_by_treadle: bool,
}
