//! The policy evaluator: builds the questions of each world from the core's state, calls the bound
//! policies, merges their answers, and falls back to built-in defaults.

mod background;
mod background_native;
pub mod calls;
pub mod columns;
pub mod evaluator;
mod extra;
pub mod native;
mod repeatable;
pub mod shaping;

pub use background::BackgroundEvaluator;
pub use repeatable::repeatable_engine;

use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
