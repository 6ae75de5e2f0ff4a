//! Transfers between the tiers of nodes, over TCP.
//!
//! One connection is one transfer: both sides send messages in [frames](frame), followed by the raw
//! bytes of a copy. State that belongs to a connection ends with it, so a peer that dies midway
//! leaves nothing behind at the other node. Without TLS, connections are not encrypted: nodes that
//! share a secret are meant to share a trusted network, too.

pub mod frame;
mod link;
mod message;
mod server;

pub(crate) use link::{Link, RemoteSaving, RemoteStaged, RemoteUnkept};
pub use server::TierServer;
