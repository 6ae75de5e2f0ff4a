//! Engines: detection, capabilities, health and KV transfers.

mod adapter;
mod capabilities;
mod drift;
mod kinds;
mod models;
mod process;
mod ranks;
mod rest_pages;
mod samples;
mod speed;
pub mod transfers;
mod watch;

pub use adapter::{Declared, DeclaredSpeeds, Detected, class_named, read_engine};
pub use drift::Drift;
pub use kinds::LogprobKinds;
pub use ranks::WORKERS_MAX;
pub use watch::{EngineWatch, Found, WatchOptions};
