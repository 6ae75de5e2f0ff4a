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
//! An [`Executor`] knows nothing of the scheduler: who decides what runs where hands over the
//! grants in an [`ActionOrder`], and takes events of the core as reports. Each attempt has a marker
//! before it begins, and for its end until it is acknowledged, so that after a crash [`recover`]
//! knows what began, what ended, and what nobody knows the end of.
//!
//! An action that could not be run at all, because its program is absent or its tenant may not
//! reach its server, ends with `InfrastructureFailure`, never with an exit code: that would be taken
//! for a wrong answer.
//!
//! Processes outside of sandboxes run as the daemon's user and are not isolated from it ([`ISOLATION`]): bounds are on
//! time, memory, cores and output. What an action leaves behind is ended with it.

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
    ActionBody, BodyError, HeldWork, HttpRequest, ProcessBody, SandboxCommand, ServiceCall,
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

/// Cores that this process may use, by number.
pub fn cores() -> Vec<u32> {
    process::Cores::of_this_process().numbers()
}

/// What keeps actions outside of sandboxes from one another and from the daemon, for people who ask.
pub const ISOLATION: &str =
    "none (processes of the daemon's user, bounded in time, memory and cores)";
