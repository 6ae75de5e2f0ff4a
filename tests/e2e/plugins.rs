//! Policies as plugins, world by world.

mod bindings;
mod crowd;
mod eviction;
mod hostile;
mod languages;
mod worlds;
