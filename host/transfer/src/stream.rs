//! Tiers of other nodes, over TCP.
//!
//! One connection is one transfer: both sides send messages in [frames](frame), a copy's bytes
//! follow as they are. What a connection began ends with it, so a peer that dies in the middle
//! leaves nothing behind at the other node. Connections are neither encrypted nor hidden: nodes
//! that share a secret are meant to share a network, too.

pub mod frame;
mod link;
mod message;
mod server;

pub(crate) use link::{Link, RemoteSaving, RemoteStaged, RemoteUnkept};
pub use server::TierServer;
