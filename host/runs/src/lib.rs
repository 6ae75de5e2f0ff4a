//! What a daemon runs for its clients: actions, sandboxes with the commands in them, and the nodes
//! that run sandboxes for it. It knows neither the paths of the HTTP API nor messages of a broker;
//! the server and the handlers of requests about sandboxes are above it, and so is a node's agent.
//!
//! Processes of treadle share what is here too: connections and forwarded requests between them
//! ([`links`], [`proxy`]), what they find out about their machine ([`machine`]), versions of weights
//! that they pull ([`weights`]), and how they listen.

pub mod actions;
mod held_action;
mod instant;
pub mod links;
mod listen;
pub mod machine;
pub mod nodes;
pub mod proxy;
pub mod sandboxes;
mod start_error;
mod storage_quotas;
pub mod weights;

pub use held_action::{HeldAction, TOKEN_CHARS};
pub use instant::rfc3339;
pub use listen::{listen, raise_files, serve_limits};
pub use start_error::StartError;
pub use storage_quotas::StorageQuotas;
