//! Starting and stopping: the order in which the parts of a daemon come up, and the reverse in
//! which they go down.

mod daemon;
mod error;
mod leading;
mod listen;

pub use daemon::Daemon;
pub use error::StartError;
pub(crate) use leading::{GatewayContext, Leading, gateway_state};
pub(crate) use listen::{listen, serve_limits};
