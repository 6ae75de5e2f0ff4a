//! The policy evaluator: builds the questions of each world out of the core's state, asks the
//! policies that are bound, puts their answers together, and falls back to built-in defaults.

mod background;
mod background_native;
pub mod calls;
pub mod columns;
pub mod evaluator;
mod extra;
pub mod native;
mod repeatable;

pub use background::BackgroundEvaluator;
pub use repeatable::repeatable_engine;

use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
