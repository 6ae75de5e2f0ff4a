//! Carries out the core's transfers of KV caches: offloads, loads and moves, each in its own task,
//! with a timeout and cancellation. The driver hands over orders without waiting, and receives the
//! results as inputs.
//!
//! Every failure here ends as an event that makes the engine recompute the context.

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
