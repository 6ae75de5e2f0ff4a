//! Sandboxes: where a program's commands run, apart from the machine and from each other.
//!
//! ```text
//! let sandboxes = Sandboxes::start(config).await?;       // what an earlier daemon left is taken in
//! let sandbox = sandboxes.create(spec).await?;           // on record; it is prepared meanwhile
//! let running = sandbox.run(Exec::new(["pytest", "-q"])).await?;
//! let children = sandboxes.fork(&sandbox, 4, |_| {}).await?; // each has the files as they are now
//! sandboxes.remove(sandbox.id()).await;
//! ```
//!
//! A sandbox has its own mounts, processes, network, host name and message queues, a private
//! writable folder over read-only ones, and bounds on memory, processes, cores and disk. Root inside
//! is nobody outside. Linux only, as root, with cgroups and overlayfs.
//!
//! Three processes have a part: the agent, which is this crate in a daemon; the keeper, which makes
//! the namespaces; and the first process inside, which runs commands on the agent's orders
//! ([`sandbox_main`] is the latter two). A sandbox's files are on disk, so that they outlive the
//! daemon; its processes do not.

mod agent;
mod blocking;
mod cgroup;
mod channel;
mod clock;
mod config;
mod copies;
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
mod turns;
mod usage;
mod wire;

pub use agent::Counters;
pub use clock::{MachineClock, ThisMachine};
pub use config::SandboxConfig;
pub use error::SandboxError;
pub use files::{Entry, FileKind};
pub use images::{ImageSources, SYSTEM_IMAGE};
pub use inside::sandbox_main;
pub use machine::{Look, look};
pub use platform::{Environment, MeasuredImage, Order, Place, Platform, Started};
pub use record::{OnExpiry, Record, SandboxSpec};
pub use sandbox::{
    End, Event, Exec, Grant, Input, Running, Sandbox, Share, State, Status, Stopper,
};
pub use sandboxes::{Sandboxes, random_name};
pub use shares::{Shared, Shares, Undivided};
pub use snapshot::Snapshot;
pub use wire::Guard;
