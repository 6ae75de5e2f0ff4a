//! Publishes the journal's events to the broker.
//!
//! The journal is the outbox: committed events are published afterwards, from a cursor in the
//! store. Nothing here blocks the scheduler: it only reads the store, and a slow or unavailable
//! broker causes a lag that is bounded, measured and reported.

mod event_message;
mod outbox;
mod status;
#[cfg(test)]
mod tests;

pub use event_message::{SCHEMA_VERSION, message};
pub use outbox::{Outbox, SINK};
pub use status::{BrokerHealth, Outcome, Status};
