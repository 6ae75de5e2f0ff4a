//! The ends of the protocol between gateways and schedulers in different processes
//! ([`treadle_scheduler::link`]).

mod connection;
mod scheduler;
mod server;

pub(crate) use connection::{Peer, keep_connected};
pub(crate) use scheduler::shard_of;
pub use scheduler::{Line, Scheduler, Shards};
pub(crate) use server::{LinkServer, expect_back, knows_secret, serve_link};
pub(crate) use treadle_scheduler::link::{
    PATH, PROTOCOL, PULSE, SILENCE_MAX, ToGateway, Withdrawn,
};
