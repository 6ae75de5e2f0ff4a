//! Engines: detection, capabilities, health and KV transfers.

mod adapter;
mod capabilities;
mod drift;
mod kinds;
mod known_ranks;
mod models;
mod options;
mod process;
mod ranks;
mod rest_pages;
mod roles;
mod samples;
mod speed;
pub mod transfers;
mod watch;

pub use adapter::{Declared, DeclaredSpeeds, Detected, class_named, read_engine, role_named};
pub use drift::Drift;
pub use kinds::LogprobKinds;
pub use options::WatchOptions;
pub use ranks::WORKERS_MAX;
pub use watch::{EngineDetails, EngineWatch};
