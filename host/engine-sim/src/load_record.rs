//! The record of an engine's weights: a line of JSON for each load and for each step that begins, in
//! the order in which they happened. It outlives the engine, so that others can count.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

/// A file that lines are added to; nothing without one.
#[derive(Default)]
pub(super) struct LoadRecord(Option<File>);

impl LoadRecord {
    /// Goes on with a file, or begins one.
    pub(super) fn append(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self(Some(file)))
    }

    /// Whether lines are kept.
    pub(super) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: &Value) {
        let Some(file) = &mut self.0 else { return };
        // One write: a line is whole or not there.
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            tracing::error!(%error, "a line of the record of weights is lost");
        }
    }
}
