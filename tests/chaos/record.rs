//! The records that clients and the consumer write as events happen: one JSON object per line. The
//! checker reads the files, not the memory of their writers.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::error::ChaosError;

/// A file that lines are added to.
pub(crate) struct Record {
    file: Mutex<File>,
}

impl Record {
    /// A new one.
    pub(crate) fn create(path: &Path) -> Result<Self, ChaosError> {
        Self::of(File::create(path), path)
    }

    /// One that goes on, or a new one.
    pub(crate) fn append(path: &Path) -> Result<Self, ChaosError> {
        let file = File::options().create(true).append(true).open(path);
        Self::of(file, path)
    }

    fn of(file: std::io::Result<File>, path: &Path) -> Result<Self, ChaosError> {
        let file = file.map_err(ChaosError::file(path.display().to_string()))?;
        Ok(Self {
            file: Mutex::new(file),
        })
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: &Value) -> Result<(), ChaosError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // One write: a line is whole or not there.
        file.write_all(format!("{line}\n").as_bytes())
            .map_err(ChaosError::file("a record"))
    }
}

/// All lines of a record.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, ChaosError> {
    let name = || path.display().to_string();
    let file = File::open(path).map_err(ChaosError::file(name()))?;
    let parse = |line: std::io::Result<String>| {
        let line = line.map_err(ChaosError::file(name()))?;
        serde_json::from_str(&line)
            .map_err(|error| ChaosError::Nonsense(format!("{}: {error}: {line}", name())))
    };
    BufReader::new(file).lines().map(parse).collect()
}
