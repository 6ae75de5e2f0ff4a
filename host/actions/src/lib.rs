//! Runs actions: processes within limits, HTTP requests, and requests to services on devices.
//!
//! ```text
//! let recovery = recover(&config).await?;            // nothing of earlier daemons runs any more
//! for (action, attempt) in started_on_record {
//!     match recovery.end(action, attempt) {
//!         Some(event) => put_on_record(event),
//!         None => run_again.push((action, attempt)), // it never began
//!     }
//! }
//! let known: Vec<_> = recovery.attempts().collect();
//! let executor = Executor::start(config, recovery, outputs, reports).await?;
//! for (action, attempt) in known {
//!     executor.acknowledge(action, attempt);         // all of their ends are on record by now
//! }
//! executor.execute(order);                           // once its start is on record
//! executor.stop(action, attempt);
//! executor.acknowledge(action, attempt);             // once its end is on record
//! ```
//!
//! An [`Executor`] is independent of the scheduler, which passes the grants in an [`ActionOrder`]
//! and receives the core's events as reports. Each attempt has a marker from before its start, and
//! another for its end until that is acknowledged, so that after a crash [`recover`] can tell
//! attempts that began, attempts that ended, and attempts whose end is unknown.
//!
//! An action that could not be run, because its program does not exist or its tenant may not reach
//! its server, ends with `InfrastructureFailure`, never with an exit code, which would count as a
//! wrong answer.
//!
//! Processes outside of sandboxes run as the daemon's user and are not isolated from it
//! ([`ISOLATION`]); their time, memory, cores and output are limited. Processes that an action
//! leaves behind are ended with it.

mod body;
mod capture;
mod executor;
mod gpus;
mod markers;
mod outputs;
mod process;
mod requests;
mod services;

pub use body::{
    ActionBody, BodyError, HandlerWork, HttpRequest, ProcessBody, SandboxCommand, ServiceCall,
};
pub use capture::Capture;
pub use executor::{
    ActionOrder, Executor, ExecutorConfig, ExecutorError, Expected, Hold, Recovery, outcome,
    recover,
};
pub use gpus::{GpuError, Gpus};
pub use outputs::{MemoryOutputs, OutputError, Outputs};
pub use process::{SupervisorCommand, supervisor_main};
pub use services::{Lifecycle, ServiceSpec};

/// Numbers of the cores that this process may use.
pub fn cores() -> Vec<u32> {
    process::Cores::of_this_process().numbers()
}

/// The isolation of actions outside of sandboxes, for display.
pub const ISOLATION: &str =
    "none (processes of the daemon's user, limited in time, memory and cores)";
