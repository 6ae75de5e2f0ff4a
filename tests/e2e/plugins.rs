//! Policies as plugins, world by world.

mod eviction;
