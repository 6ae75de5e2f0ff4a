//! `[logging]`: logging to standard error.

use serde::{Deserialize, Serialize};

use super::section::{Form, Setting, section};

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Setting for LogFormat {
    const FORM: Form = Form::Choice(&["text", "json"]);
}

section! {
    /// Logging to standard error.
    LoggingConfig in "logging" {
        /// Log level: `error`, `warn`, `info`, `debug` or `trace`, optionally with levels for parts of the program after commas: `info,treadle_core=debug`.
        filter: String = "info".to_owned(), "";
        /// Format of a line.
        format: LogFormat = LogFormat::Text, "";
    }
}
