//! How programs are placed, stay placed, give their memory up and wait for it.

mod accounting;
mod context;
mod costs;
mod faster;
mod growth;
mod headroom;
mod host_memory;
mod ledger;
mod migrations;
mod models;
mod offloads;
mod pressure;
mod ranked;
mod restore;
mod retention;
mod routing;
mod run_queue;
mod sizes;
mod waiting;
pub(crate) mod why;
