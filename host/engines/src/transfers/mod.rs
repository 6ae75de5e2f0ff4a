//! Carries out what the core wants done with the KV caches of programs: offloads,
//! loads and moves, each a task of its own, bounded in time and ended when it is
//! given up. The driver hands orders over and never waits; what came of them
//! reaches it as any other input.
//!
//! Whatever goes wrong here ends as an event that has the context computed again.

mod books;
mod carrier;
mod drops;
mod held;
mod node;
mod prompts;
mod reconcile;
mod tags;
#[cfg(test)]
mod tests;
mod work;

pub use books::TransferBooks;
pub use carrier::Carrier;
pub use node::{Node, NodeError};
pub use prompts::Prompts;
