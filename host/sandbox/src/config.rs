//! What an agent is given by its operator.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{MachineClock, ThisMachine};
use crate::images::ImageSources;
use crate::shares::{Shares, Undivided};
use crate::wire::Guard;

/// What an agent is given by its operator.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// A program that calls [`sandbox_main`](crate::sandbox_main) and does nothing else, with what
    /// makes it do so.
    pub program: (PathBuf, Vec<OsString>),
    /// A folder of this agent's own: images and the files of sandboxes.
    pub folder: PathBuf,
    /// A cgroup of version 2 that is delegated to the agent; without one it makes its own.
    pub cgroup: Option<PathBuf>,
    /// Cores that actions run on.
    pub cores: Vec<u32>,
    /// Sandboxes at once.
    pub sandboxes_max: usize,
    /// Sandboxes that are made at once; others wait.
    pub creations_max: usize,
    /// Memory of a sandbox that asks for no other.
    pub memory_bytes: u64,
    /// Processes and threads of a sandbox.
    pub processes_max: u64,
    /// What a sandbox writes to disk at most.
    pub disk_bytes_max: u64,
    /// What images and snapshots take of the disk before those go that were not used for the
    /// longest; 0 for no bound.
    pub images_bytes_max: u64,
    /// What snapshots and other copies of sandboxes' files take of the disk at most.
    pub copies_bytes_max: u64,
    /// What the files of all sandboxes take of the disk before one is stopped; 0 for nine tenths of
    /// the disk.
    pub files_bytes_max: u64,
    /// What a tenant may have of all that is shared.
    pub shares: Arc<dyn Shares>,
    /// What of this machine may become an image.
    pub image_sources: ImageSources,
    /// Snapshots at once.
    pub snapshots_max: usize,
    /// The first of 65,536 users of the machine that are the users of sandboxes; no others may be.
    pub uid: u32,
    /// How long a sandbox lives that says nothing else, from when it is ready.
    pub ttl: Duration,
    /// What names of sandboxes end with, in the letters of names: which agent's they are.
    pub mark: String,
    /// The clocks of the machine.
    pub clock: Arc<dyn MachineClock>,
    /// Protections that are left out, to prove by a test that they are needed.
    pub without: Vec<Guard>,
}

impl SandboxConfig {
    /// A configuration with the usual bounds.
    pub fn new(program: (PathBuf, Vec<OsString>), folder: PathBuf, cores: Vec<u32>) -> Self {
        Self {
            program,
            folder,
            cgroup: None,
            creations_max: 2 * cores.len().max(1),
            cores,
            sandboxes_max: 1_024,
            memory_bytes: 2 << 30,
            processes_max: 1_024,
            disk_bytes_max: 10 << 30,
            images_bytes_max: 0,
            copies_bytes_max: 40 << 30,
            files_bytes_max: 0,
            shares: Arc::new(Undivided),
            image_sources: ImageSources::default(),
            snapshots_max: 1_024,
            uid: 231_072,
            ttl: Duration::from_hours(1),
            mark: String::new(),
            clock: Arc::new(ThisMachine),
            without: Vec::new(),
        }
    }
}
