//! Figures of benchmarks as text and as JSON, with what they were measured on.

pub mod figures;
pub mod latencies;
pub mod machine;
pub mod table;
