//! Engines: what they are, what they hold, and whether they answer.

mod adapter;
mod watch;

pub use adapter::{Declared, read_engine};
pub use watch::{EngineWatch, WatchOptions};
