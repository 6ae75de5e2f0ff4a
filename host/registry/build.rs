//! Embeds the reference policies in Rust, which `make guests` builds.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The folder of the reference policies; those in Rust have a manifest there.
const POLICIES: &str = "plugins";

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&manifest).join("../..");
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    let workspace = root.join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", workspace.display());
    embed_policies(&root, &out);
}

/// Writes a list of the policies: name, summary and module of each. A new one becomes a member of
/// the workspace, whose manifest is watched.
fn embed_policies(root: &Path, out: &Path) {
    let names = names_in(&root.join(POLICIES)).unwrap_or_default();
    let mut code = String::from("&[\n");
    for name in names {
        let manifest = root.join(POLICIES).join(&name).join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&manifest) else {
            continue;
        };
        println!("cargo::rerun-if-changed={}", manifest.display());
        let summary = text
            .lines()
            .find_map(|line| line.strip_prefix("description = "));
        let file = format!("{}.wasm", name.replace('-', "_"));
        copy_guest(root, out, &file);
        // Writing to a string can't fail.
        let _ = writeln!(
            code,
            "    ({name:?}, {}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\"))),",
            summary.unwrap_or("\"\"")
        );
    }
    code.push_str("]\n");
    if let Err(error) = std::fs::write(out.join("reference_policies.rs"), code) {
        println!("cargo::error=the list of the policies can't be written: {error}");
    }
}

fn copy_guest(root: &Path, out: &Path, file: &str) {
    let guest = root.join("target/guests").join(file);
    println!("cargo::rerun-if-changed={}", guest.display());
    if let Err(error) = std::fs::copy(&guest, out.join(file)) {
        println!(
            "cargo::error=the policy {} is missing ({error}); run `make guests` first",
            guest.display()
        );
    }
}

/// The names in a folder, sorted; nothing if it is not a folder.
fn names_in(folder: &Path) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    Some(names)
}
