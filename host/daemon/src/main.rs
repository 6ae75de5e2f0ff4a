//! The `treadle` binary.
fn main() {}
