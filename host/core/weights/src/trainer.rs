//! What a trainer does to one engine by itself, by the engine's own control protocol.

use serde::{Deserialize, Serialize};
use treadle_model::Timestamp;

/// A call of a trainer to an engine, as far as it concerns the engine's weights.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainerCall {
    /// Pause generation.
    Pause {
        /// treadle makes the call, because the trainer does not.
        own: bool,
    },
    /// Join a process group with the trainer and the other engines.
    Join,
    /// Begin an update that comes in parts.
    Begin,
    /// treadle begins one for a trainer that does not, because the engine wants that. treadle ends
    /// it, too, before the resume.
    BeginOwn,
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
    /// The call's name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pause { .. } => "pause",
            Self::Join => "join",
            Self::Begin | Self::BeginOwn => "begin",
            Self::Part { .. } => "part",
            Self::End { .. } => "end",
            Self::Load { .. } => "load",
            Self::Resume => "resume",
        }
    }

    /// The version's name, if the call has it.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Part { name } | Self::End { name } | Self::Load { name } => name.as_deref(),
            Self::Pause { .. } | Self::Join | Self::Begin | Self::BeginOwn | Self::Resume => None,
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
    /// Parts of an update that no call begins or ends: only the resume shows that it is complete.
    Parts,
    /// Parts, or none yet, of an update that treadle began for its trainer, and has to end.
    Own,
    /// Parts of an update that can't be completed: its trainer paused the engine again before the
    /// resume, or the engine refused one of them.
    Left,
    /// All that the trainer had to send, as far as the calls show.
    All,
}

/// What a trainer is doing to an engine.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trainer {
    /// Its call that has not ended.
    pub call: Option<TrainerCall>,
    /// When its last call was made.
    pub since: Timestamp,
    /// What it has replaced.
    pub extent: Extent,
    /// The engine is to generate again.
    pub resumes: bool,
    /// treadle paused the engine for it.
    pub paused_by_treadle: bool,
    /// Its pause failed, so that it may generate.
    pub may_generate: bool,
}
