//! Models of inference engines: continuous batching with a prefix cache, the speed of hardware, and
//! links for transfers of KV caches.
//!
//! Nothing here reads a clock or opens a socket: time is a number of microseconds that the caller
//! advances.

pub mod engine;
pub mod hardware;
pub mod links;
mod prompt;

pub use prompt::{ANSWER_TAG, render_prompt};
