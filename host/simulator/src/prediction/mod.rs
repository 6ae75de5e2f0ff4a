//! How well predictions of what programs still need come true.

mod figures;

pub use figures::{pearson, tail_recall};
