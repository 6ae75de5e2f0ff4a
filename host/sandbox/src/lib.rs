//! Sandboxes: isolated environments for programs' commands.
//!
//! ```text
//! let sandboxes = Sandboxes::start(config).await?;       // takes over what an earlier daemon left
//! let sandbox = sandboxes.create(spec).await?;           // recorded; prepared in the background
//! let running = sandbox.run(Exec::new(["pytest", "-q"])).await?;
//! let children = sandboxes.fork(&sandbox, 4, |_| {}).await?; // with the current files
//! sandboxes.remove(sandbox.id()).await;
//! ```
//!
//! A sandbox has its own mounts, processes, network, host name and message queues, a private
//! writable folder over read-only ones, and limits on memory, processes, cores and disk. Root
//! inside is an unprivileged user outside. Requires Linux, root, cgroups and overlayfs.
//!
//! Three processes are involved: the agent, which is this crate in a daemon; the keeper, which
//! makes the namespaces; and the first process inside, which runs commands for the agent
//! ([`sandbox_main`] is the latter two). A sandbox's files are on disk and outlive the daemon; its
//! processes do not.

mod agent;
mod blocking;
mod cgroup;
mod channel;
mod clock;
mod config;
mod copies;
mod creation_queue;
mod digest;
mod error;
mod files;
mod hosts;
mod images;
mod inside;
mod layers;
mod live;
mod machine;
mod namespaces;
mod platform;
mod record;
mod sandbox;
mod sandboxes;
mod shares;
mod snapshot;
mod usage;
mod wire;

pub use agent::Counters;
pub use clock::{MachineClock, ThisMachine};
pub use config::SandboxConfig;
pub use error::SandboxError;
pub use files::{Entry, FileKind, UserIds};
pub use images::{ImageSources, SYSTEM_IMAGE};
pub use inside::sandbox_main;
pub use machine::{Look, look};
pub use platform::{Environment, MeasuredImage, Order, Place, Platform, Started};
pub use record::{OnExpiry, Record, SandboxSpec};
pub use sandbox::{
    End, Event, Exec, Grant, Input, Running, Sandbox, Share, State, Status, Stopper,
};
pub use sandboxes::{Forks, Sandboxes, random_name};
pub use shares::{Shared, Shares, Undivided};
pub use snapshot::Snapshot;
pub use wire::Guard;
