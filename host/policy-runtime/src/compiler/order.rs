//! The message from the parent to the child before the component: one line of JSON.

use serde::{Deserialize, Serialize};

use super::CompilerLimits;
use crate::artifacts::ArtifactKey;
use crate::engine::Settings;

/// Longest line that is read.
pub(crate) const LINE_BYTES_MAX: u64 = 4_096;

/// How to compile, and with which limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) cpu_s_max: u64,
    pub(crate) memory_bytes_max: u64,
    pub(crate) settings: Settings,
    /// All settings of the engine that will run the code, so that a child of another build is
    /// detected before it compiles.
    pub(crate) engine: String,
}

impl Order {
    pub(crate) fn new(limits: &CompilerLimits, settings: Settings, key: &ArtifactKey) -> Self {
        Self {
            cpu_s_max: limits.cpu_s_max,
            memory_bytes_max: limits.memory_bytes_max,
            settings,
            engine: key.engine_hex(),
        }
    }

    /// Its JSON, with the newline.
    pub(crate) fn line(&self) -> String {
        // A struct of numbers and a text, for which serialization can't fail.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}
