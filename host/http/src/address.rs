//! The two ends of a connection, as extensions of its requests.

use std::net::SocketAddr;

/// The address that a connection came from.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// The connection is encrypted.
#[derive(Clone, Copy, Debug)]
pub struct Encrypted;

/// The address of the daemon that a connection came to.
#[derive(Clone, Copy, Debug)]
pub struct ServedAddress(pub SocketAddr);
