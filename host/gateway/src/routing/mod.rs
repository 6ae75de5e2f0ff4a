//! Routing of jobs' steps to schedulers, and connections to those in other processes.

mod connection;
mod dial;
mod scheduler;

pub use connection::{Leader, Peer, keep_connected};
pub use dial::{DialError, dial};
pub use scheduler::{RemoteClient, Scheduler, SchedulerClient, Shards, shard_of};
