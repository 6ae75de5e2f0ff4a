//! treadle, its plain modes and the routers of others, each as a process in front of engines.

mod command;
pub(super) mod front;
mod list;
pub(super) mod systems;
