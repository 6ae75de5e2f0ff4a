//! Outputs of attempts, stored in a folder until the daemon has them.

use async_trait::async_trait;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use treadle_actions::{OutputError, Outputs};
use treadle_sandbox::random_name;

/// Length of an output's name.
const NAME_CHARS: usize = 24;

/// A folder with a file per output. Names are random, so that attempts with equal outputs have
/// separate files.
pub(super) struct FileOutputs(PathBuf);

impl FileOutputs {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        treadle_trust::private_folder(folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// Removes all outputs but these.
    pub(super) fn keep(&self, names: &BTreeSet<Box<str>>) {
        let files = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        for file in files {
            let name = file.file_name();
            if name.to_str().is_none_or(|name| !names.contains(name)) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    /// Reads an output; empty if it can't be read.
    pub(super) async fn read(&self, name: &str) -> Vec<u8> {
        let read = tokio::fs::read(self.0.join(name)).await;
        read.unwrap_or_else(|error| {
            tracing::error!(name, %error, "the output of an action is lost");
            Vec::new()
        })
    }

    /// Removes an output.
    pub(super) fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.0.join(name));
    }
}

#[async_trait]
impl Outputs for FileOutputs {
    async fn put(&self, _: &str, bytes: Vec<u8>) -> Result<Box<str>, OutputError> {
        let name = random_name(NAME_CHARS).map_err(|error| OutputError(error.to_string()))?;
        let written = tokio::fs::write(self.0.join(&name), bytes).await;
        written.map_err(|error| OutputError(error.to_string()))?;
        Ok(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn attempts_that_write_the_same_have_one_each() {
        let root = tempfile::tempdir().expect("a folder");
        let outputs = FileOutputs::open(root.path()).expect("it opens");
        let one = outputs.put("", b"OK".to_vec()).await.expect("it is kept");
        let other = outputs.put("", b"OK".to_vec()).await.expect("it is kept");
        outputs.remove(&one);
        assert_eq!(outputs.read(&other).await, b"OK");
        assert!(outputs.read(&one).await.is_empty());
        let left = outputs.put("", b"of nobody".to_vec()).await.expect("kept");
        outputs.keep(&BTreeSet::from([other.clone()]));
        assert!(outputs.read(&left).await.is_empty());
        assert_eq!(outputs.read(&other).await, b"OK");
    }
}
