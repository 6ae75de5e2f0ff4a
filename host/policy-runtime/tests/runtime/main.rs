//! The runtime from outside: faults, uploads, host functions, every world, and equal scores with
//! and without the sandbox.

mod contract;
mod description;
mod deterministic;
mod faults;
mod fixture;
mod offered;
mod parity;
mod scripted;
mod snapshots;
mod upload;
mod worlds;
