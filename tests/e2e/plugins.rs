//! Policies as plugins, world by world.

mod bindings;
pub(crate) mod crowd;
mod eviction;
mod hostile;
mod languages;
mod reference;
mod retention;
mod worlds;
