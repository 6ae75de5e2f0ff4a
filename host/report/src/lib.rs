//! Figures of benchmarks as text and as JSON, with the machine that they were measured on.

pub mod figures;
pub mod latencies;
pub mod machine;
pub mod table;
