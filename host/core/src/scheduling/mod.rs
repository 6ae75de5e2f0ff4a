//! How programs get places, keep them, give them up and wait for them.

mod accounting;
mod context;
mod costs;
mod growth;
mod headroom;
mod host_memory;
mod ledger;
mod line;
mod migrations;
mod offloads;
mod pressure;
mod restore;
mod retention;
mod rollout;
mod routing;
mod sizes;
mod waiting;
pub(crate) mod why;
