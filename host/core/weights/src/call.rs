//! Calls to engines, and how they end.

use serde::{Deserialize, Serialize};

/// One call of an update, to one engine.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Ask whether it can be loaded, while it serves.
    Prepare,
    /// Pause generation such that caches are computed again afterwards.
    Pause,
    /// Load the weights.
    Apply,
    /// Ask which version it has, and for a checksum of its weights.
    Verify,
    /// Clear caches that were computed with other weights.
    Clear,
    /// Generate again.
    Resume,
}

impl Call {
    /// The call's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Pause => "pause",
            Self::Apply => "apply",
            Self::Verify => "verify",
            Self::Clear => "clear",
            Self::Resume => "resume",
        }
    }
}

/// A checksum of an engine's weights. Engines that split a model otherwise have other checksums.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Checksum {
    /// How the engine splits and computes it: only checksums of one layout can be compared.
    pub layout: Box<str>,
    /// Its value.
    pub value: Box<str>,
}

impl Answer {
    /// The answer as it counts if the software's word for whole weights does, or does not.
    pub(crate) fn believed_as_whole(&self, believed: bool) -> Self {
        let mut answer = self.clone();
        if let Self::Reports { whole, .. } = &mut answer {
            *whole &= believed;
        }
        answer
    }
}

/// How a call ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The engine did it.
    Done,
    /// What the engine has. Of [`Call::Verify`] only.
    Reports {
        /// The version's name; absent if its software has none.
        name: Option<Box<str>>,
        /// A checksum; absent if its software computes none.
        checksum: Option<Checksum>,
        /// Its software names a version only while it has it as a whole.
        whole: bool,
    },
    /// The engine did not, and nothing has changed there.
    Refused {
        /// Its words.
        cause: Box<str>,
    },
    /// The engine failed, or gave no answer: what it has now is not known.
    Failed {
        /// Its words, or why there was no answer.
        cause: Box<str>,
    },
}
