//! Embeds the SDKs and their templates, from which `treadle plugin new` creates projects.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Files and folders that a new project is created from.
const EMBEDDED: &[&str] = &[
    "Cargo.toml",
    "sdk/inputs",
    "sdk/python/requirements.txt",
    "sdk/python/template",
    "sdk/python/treadle_plugin",
    "sdk/rust/Cargo.toml",
    "sdk/rust/README.md",
    "sdk/rust/src",
    "sdk/rust/template",
    "sdk/rust/wit",
    "sdk/typescript/package-lock.json",
    "sdk/typescript/package.json",
    "sdk/typescript/src",
    "sdk/typescript/template",
    "wit",
];
/// Output of build tools, not embedded.
const SKIPPED: &[&str] = &["__pycache__", "node_modules", "target"];

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&manifest).join("../..");
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    let mut files = Vec::new();
    for path in EMBEDDED {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
        collect(&root, path, &mut files);
    }
    let mut code = String::from("&[\n");
    for path in files {
        // Writing to a string can't fail.
        let full = root.join(&path).display().to_string();
        let _ = writeln!(code, "    ({path:?}, include_str!({full:?})),");
    }
    code.push_str("]\n");
    if let Err(error) = std::fs::write(out.join("sdk_files.rs"), code) {
        println!("cargo::error=the list of the SDK's files can't be written: {error}");
    }
}

/// All files below a path, in the order of their names.
fn collect(root: &Path, path: &str, files: &mut Vec<String>) {
    let Some(names) = names_in(&root.join(path)) else {
        files.push(path.to_owned());
        return;
    };
    for name in names {
        collect(root, &format!("{path}/{name}"), files);
    }
}

/// The names in a folder, sorted; empty if it is not a folder.
fn names_in(folder: &Path) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !SKIPPED.contains(&name.as_str()))
        .collect();
    names.sort();
    Some(names)
}
