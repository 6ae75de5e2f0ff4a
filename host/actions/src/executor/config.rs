//! The operator's configuration of an executor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use treadle_sandbox::Sandboxes;
use treadle_trust::Trust;

use crate::gpus::Gpus;
use crate::process::SupervisorCommand;

/// Default environment variables that actions inherit from the daemon.
const INHERITED: [&str; 7] = ["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER"];

/// The operator's configuration of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// The program that supervises processes.
    pub supervisor: SupervisorCommand,
    /// A folder for this daemon only, on a disk that survives the daemon.
    pub markers: PathBuf,
    /// The epoch under which the daemon leads its store, one greater than the previous leader's.
    pub epoch: u64,
    /// Default working folder of actions, and base of relative ones.
    pub workdir: PathBuf,
    /// Environment variables that actions inherit from the daemon.
    pub inherit: Vec<String>,
    /// Most attempts that are running or whose end is not acknowledged.
    pub attempts_max: usize,
    /// Bytes kept of an output, half from its beginning and half from its end.
    pub output_bytes_max: usize,
    /// Time between the request to end and the kill of a process.
    pub grace: Duration,
    /// A cgroup (version 2) delegated to the daemon with the controllers `cpu`, `cpuset` and
    /// `memory`. Without one, cores are limited by CPU affinity, and memory use is polled.
    pub cgroup: Option<PathBuf>,
    /// Whether each supervisor gets its own cgroup below the daemon's, if permitted, so that no
    /// process of an action outlives it. Otherwise a guard process ensures that.
    pub pens: bool,
    /// Runs commands in sandboxes; without it they are refused.
    pub sandboxes: Option<Sandboxes>,
    /// The GPUs that actions and their services share.
    pub gpus: Gpus,
    /// The daemon's own address, which actions must not reach.
    pub own: SocketAddr,
    /// Hosts, ports and networks that each tenant's requests may reach; other tenants reach
    /// nothing.
    pub egress: BTreeMap<String, Vec<String>>,
    /// The certificate authorities that are trusted.
    pub trust: Trust,
    /// Timeout for opening a connection.
    pub connect_timeout: Duration,
}

impl ExecutorConfig {
    /// A configuration for the first epoch with default limits, no egress and no cgroup.
    pub fn new(supervisor: SupervisorCommand, markers: PathBuf, own: SocketAddr) -> Self {
        Self {
            supervisor,
            markers,
            epoch: 1,
            workdir: std::env::temp_dir(),
            inherit: INHERITED.map(str::to_owned).to_vec(),
            attempts_max: 4_096,
            output_bytes_max: 1 << 20,
            grace: Duration::from_secs(2),
            cgroup: None,
            pens: true,
            sandboxes: None,
            gpus: Gpus::default(),
            own,
            egress: BTreeMap::new(),
            trust: Trust::default(),
            connect_timeout: Duration::from_secs(10),
        }
    }
}
