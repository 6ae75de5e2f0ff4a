//! The console's files come and go with each build of `web/`.

fn main() {
    println!("cargo::rerun-if-changed=../../web/dist");
}
