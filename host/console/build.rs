//! Rebuilds the crate when the files that `web/` builds change.

fn main() {
    println!("cargo::rerun-if-changed=../../web/dist");
}
