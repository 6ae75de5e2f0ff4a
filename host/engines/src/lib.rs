//! Engines: what they are, what they hold, and whether they answer.

mod adapter;
mod drift;
mod means;
mod models;
mod rest_pages;
mod samples;
mod speed;
pub mod transfers;
mod watch;

pub use adapter::{Declared, DeclaredSpeeds, read_engine};
pub use drift::Drift;
pub use watch::{EngineWatch, Found, WatchOptions};
