//! How programs are placed, keep their placement, lose their memory and wait for it.

mod accounting;
mod affinity;
mod context;
mod costs;
pub(crate) mod explanation;
mod faster;
mod headroom;
mod host_memory;
mod ledger;
mod migrations;
mod models;
mod offloads;
mod pressure;
mod ranked;
mod ranks;
mod restore;
mod retention;
mod roles;
mod routing;
mod run_queue;
mod sizes;
mod suspension;
mod waiting;
