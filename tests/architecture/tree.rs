//! The repository's files, and its packages according to cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Folders with generated content only.
const SKIPPED: &[&str] = &["target", "node_modules", "dist", "__pycache__"];

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file: its path from the root, with forward slashes, and its text.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files with an ending in some folders, by path.
pub(crate) fn sources(folders: &[&str], ending: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in folders {
        collect(folder, ending, &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(folder: &str, ending: &str, found: &mut Vec<Source>) {
    for name in names(folder) {
        let path = format!("{folder}/{name}");
        let full = root().join(&path);
        if full.is_dir() {
            if !SKIPPED.contains(&name.as_str()) && !name.starts_with('.') {
                collect(&path, ending, found);
            }
        } else if path.ends_with(ending) {
            let text =
                std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"));
            found.push(Source { path, text });
        }
    }
}

/// Names in a folder; none if it isn't there.
pub(crate) fn names(folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root().join(folder)) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// A file at the root.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The packages that `cargo metadata` lists.
pub(crate) fn packages(options: &[&str]) -> Vec<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(options)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}
