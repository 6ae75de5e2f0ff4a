//! Runs policies as sandboxed WebAssembly components.
//!
//! [`PolicyEngine::inspect`] takes an upload through every check and gives a
//! component that may run, or an [`UploadRefusal`] that says what to do.
//! [`PolicyEngine::load`] makes an instance of it. An instance belongs to one
//! thread at a time and is called synchronously; each call has a deadline, bounded
//! memory and stack, and its answer is checked. A call that goes wrong gives a
//! [`PolicyFault`]; the caller then decides by its built-in default, and the
//! instance replaces itself before its next call. [`Breaker`] says when to stop
//! asking a policy at all.
//!
//! This crate knows nothing of programs, workers and jobs, nor when to ask which
//! policy; no type of the WebAssembly engine leaves it.

mod breaker;
mod engine;
mod error;
mod inspect;
mod instance;
mod limits;
mod policy_log;
mod sandbox;
mod smoke;
mod ticker;
mod worlds;

pub use breaker::{Breaker, BreakerLimits, BreakerState};
pub use engine::PolicyEngine;
pub use error::{LoadError, PolicyFault, RuntimeError, UploadRefusal};
pub use inspect::Inspection;
pub use instance::Description;
pub use limits::Limits;
pub use policy_log::{LogLevel, LogLine};
pub use smoke::SmokeTiming;
pub use worlds::eviction::{
    ActingColumns, ActiveColumns, EvictionInstance, EvictionModule, WaitingColumns,
};
