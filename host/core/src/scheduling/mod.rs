//! How programs get places, keep them, give them up and wait for them.

mod context;
mod ledger;
mod line;
mod migrations;
mod pressure;
mod restore;
mod rollout;
mod routing;
mod waiting;
pub(crate) mod why;
