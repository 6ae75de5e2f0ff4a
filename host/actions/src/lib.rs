//! Runs actions: processes within limits, HTTP requests, and requests to services on devices.
//!
//! An [`Executor`] takes [`StartRequest`]s and tells what became of them as [`ExecutorEvent`]s. It
//! knows nothing of the scheduler: who decides what runs where hands over the grants. Each attempt
//! is on the disk before it begins, and its end until it is acknowledged, so that after a crash
//! [`Executor::recover`] knows what began, what ended, and what nobody knows the end of.
//!
//! Processes run as the daemon's user and are not isolated from it ([`ISOLATION`]): bounds are on
//! time, memory, cores and output. What an action leaves behind is ended with it.

mod body;
mod capture;
mod executor;
mod markers;
mod outputs;
mod process;
mod requests;
mod services;

pub use body::{ActionBody, BodyError, HttpBody, ProcessBody, ServiceBody};
pub use executor::{
    Executor, ExecutorConfig, ExecutorError, ExecutorEvent, StartError, StartRequest,
};
pub use markers::{AttemptId, Found, Recovery};
pub use outputs::{MemoryOutputs, OutputError, Outputs};
pub use process::{SupervisorCommand, supervisor_main};
pub use services::{Lifecycle, ServiceSpec};

/// What keeps actions from one another and from the daemon, for people who ask.
pub const ISOLATION: &str =
    "none: processes of the daemon's user, bounded in time, memory and cores";
