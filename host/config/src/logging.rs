//! `[logging]`: what goes to standard error.

use serde::{Deserialize, Serialize};

use super::section::{Form, Setting, section};

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one object a line.
    Json,
}

impl Setting for LogFormat {
    const FORM: Form = Form::Choice(&["text", "json"]);
}

section! {
    /// What goes to standard error.
    LoggingConfig in "logging" {
        /// What is logged: `error`, `warn`, `info`, `debug` or `trace`, with others for parts of the program after commas: `info,treadle_core=debug`.
        filter: String = "info".to_owned(), "";
        /// What a line looks like.
        format: LogFormat = LogFormat::Text, "";
    }
}
