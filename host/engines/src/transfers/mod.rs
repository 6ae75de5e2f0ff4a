//! Carries out what the core wants done with the KV caches of programs: offloads, loads and moves,
//! each a task of its own, bounded in time and ended when it is cancelled. The driver hands orders
//! over and never waits; the results reach it as any other input.
//!
//! Whatever goes wrong here ends as an event that has the context computed again.

mod copies;
mod deletions;
mod node;
mod prompts;
mod reconcile;
mod stats;
mod tags;
#[cfg(test)]
mod tests;
mod transfer_executor;
mod work;

pub use node::{Abilities, Node, NodeError};
pub use prompts::Prompts;
pub use stats::TransferStats;
pub use transfer_executor::TransferExecutor;
