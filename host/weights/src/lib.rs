//! Loads versions of weights into engines. `docs/weights.md` describes it.
//!
//! The core decides which call an engine gets next, and what its answer proves. Here is how each
//! engine's software is called ([`engines`]), and the executor that makes the calls.

pub mod engines;
mod executor;
mod hosts;

#[cfg(test)]
mod tests;

pub use executor::make_calls;
pub use hosts::{Hosts, StoredWeights};
