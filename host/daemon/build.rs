//! Embeds the policies of eviction that answer by default, which `make guests` builds,
//! and the SDKs with their templates, from which `treadle plugin new` makes projects.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Policies that answer unless others are bound.
const POLICIES: [&str; 2] = ["foresight_eviction.wasm", "thunderagent_eviction.wasm"];
/// What a new project is made from.
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
/// What tools leave behind, and what is for tests of the contract alone.
const SKIPPED: &[&str] = &["__pycache__", "frozen", "node_modules", "target"];

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&manifest).join("../..");
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    embed_policies(&root, &out);
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

fn embed_policies(root: &Path, out: &Path) {
    for file in POLICIES {
        let guest = root.join("target/guests").join(file);
        println!("cargo::rerun-if-changed={}", guest.display());
        if let Err(error) = std::fs::copy(&guest, out.join(file)) {
            println!(
                "cargo::error=the policy {} is missing ({error}); run `make guests` first",
                guest.display()
            );
        }
    }
}

/// All files below a path, in the order of their names.
fn collect(root: &Path, path: &str, files: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(root.join(path)) else {
        files.push(path.to_owned());
        return;
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !SKIPPED.contains(&name.as_str()))
        .collect();
    names.sort();
    for name in names {
        collect(root, &format!("{path}/{name}"), files);
    }
}
