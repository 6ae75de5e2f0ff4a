//! Real sandboxes: over REST, and with the client packages of other services.

mod clock;
mod e2b;
mod fusion;
mod guides;
mod images;
mod mini;
mod nodes;
mod rest;
mod shares;
pub(crate) mod stage;
mod swerex;
