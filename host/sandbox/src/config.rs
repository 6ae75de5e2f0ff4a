//! The operator's configuration of an agent.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{MachineClock, ThisMachine};
use crate::images::ImageSources;
use crate::shares::{Shares, Undivided};
use crate::wire::Guard;

/// The operator's configuration of an agent.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// A program that only calls [`sandbox_main`](crate::sandbox_main).
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// This agent's folder for images and the files of sandboxes.
    pub folder: PathBuf,
    /// A cgroup of version 2 that is delegated to the agent; it makes its own if absent.
    pub cgroup: Option<PathBuf>,
    /// Cores that actions run on.
    pub cores: Vec<u32>,
    /// Maximum number of sandboxes.
    pub sandboxes_max: usize,
    /// Maximum number of sandboxes made at once; others wait.
    pub creations_max: usize,
    /// Memory of all sandboxes together.
    pub memory_bytes_all: u64,
    /// Default memory of a sandbox.
    pub memory_bytes: u64,
    /// Maximum number of processes and threads of a sandbox.
    pub processes_max: u64,
    /// Maximum number of bytes that a sandbox may write to disk.
    pub disk_bytes_max: u64,
    /// Disk space for images and snapshots, beyond which the least recently used are removed; 0 for
    /// no limit.
    pub images_bytes_max: u64,
    /// Disk space for snapshots and other copies of sandboxes' files.
    pub copies_bytes_max: u64,
    /// Disk space for the files of all sandboxes, beyond which one is stopped; 0 for nine tenths of
    /// the disk.
    pub files_bytes_max: u64,
    /// The tenants' shares of common limits.
    pub shares: Arc<dyn Shares>,
    /// The files of this machine that may become images.
    pub image_sources: ImageSources,
    /// Maximum number of snapshots.
    pub snapshots_max: usize,
    /// The first of 65,536 user ids of the machine for sandboxes, used by nothing else.
    pub uid: u32,
    /// Default lifetime of a sandbox, from when it is ready.
    pub ttl: Duration,
    /// Suffix of the names of this agent's sandboxes.
    pub mark: String,
    /// The clocks of the machine.
    pub clock: Arc<dyn MachineClock>,
    /// Protections to leave out, so that a test can prove that they are needed.
    pub without: Vec<Guard>,
}

impl SandboxConfig {
    /// A configuration with default limits.
    pub fn new(
        program: PathBuf,
        arguments: Vec<OsString>,
        folder: PathBuf,
        cores: Vec<u32>,
    ) -> Self {
        Self {
            program,
            arguments,
            folder,
            cgroup: None,
            creations_max: 2 * cores.len().max(1),
            cores,
            sandboxes_max: 1_024,
            memory_bytes_all: 1 << 50,
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
