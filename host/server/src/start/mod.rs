//! Starting and stopping: the order in which the parts of a daemon come up, and the reverse in
//! which they go down.

mod daemon;
mod end_cause;
mod engines;
mod leading;
mod pruning;
mod relay_ports;
mod training;
mod weight_hosts;

pub use crate::start_error::StartError;
pub use daemon::Daemon;
pub use end_cause::EndCause;
pub(crate) use leading::{GatewayContext, Leading, gateway_state, keep_hash_key};
pub use treadle_runs::raise_files;
