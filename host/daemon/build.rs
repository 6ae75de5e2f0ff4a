//! Embeds the reference policy: `make guests` builds it, this copies it.

use std::path::{Path, PathBuf};

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let guest = Path::new(&manifest).join("../../target/guests/thunderagent_eviction.wasm");
    println!("cargo::rerun-if-changed={}", guest.display());
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    if let Err(error) = std::fs::copy(&guest, out.join("thunderagent_eviction.wasm")) {
        println!(
            "cargo::error=the reference policy {} is missing ({error}); run `make guests` first",
            guest.display()
        );
    }
}
