//! What an executor is given by its operator.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use treadle_sandbox::Sandboxes;
use treadle_trust::Trust;

use crate::gpus::Gpus;
use crate::process::SupervisorCommand;

/// Variables that an action gets from the daemon's environment, unless others are named.
const INHERITED: [&str; 7] = ["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER"];

/// What an executor is given by its operator.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// What supervises processes.
    pub supervisor: SupervisorCommand,
    /// A folder of this daemon's own, on a disk that survives the daemon.
    pub markers: PathBuf,
    /// The epoch under which the daemon leads its store, one greater than that of the leader before.
    pub epoch: u64,
    /// Where actions run that name no folder, and where relative ones begin.
    pub workdir: PathBuf,
    /// Variables that actions get from the daemon's environment.
    pub inherit: Vec<String>,
    /// Attempts that run or whose end is not acknowledged.
    pub attempts_max: usize,
    /// Bytes of an output that are kept, half from its beginning and half from its end.
    pub output_bytes_max: usize,
    /// How long processes have between the request to end and their end.
    pub grace: Duration,
    /// A cgroup (version 2) that is delegated to the daemon, with the controllers `cpu`, `cpuset`
    /// and `memory`. Without one, cores are bound by affinity and memory is watched.
    pub cgroup: Option<PathBuf>,
    /// Whether each supervisor has a cgroup of its own below the daemon's, where that may be, so that
    /// nothing of an action outlives it. Otherwise a process before it sees to that.
    pub pens: bool,
    /// Where commands in sandboxes run; they can't be run without it.
    pub sandboxes: Option<Sandboxes>,
    /// The GPUs that actions and their services share.
    pub gpus: Gpus,
    /// Where the daemon listens: no action may ask it.
    pub own: SocketAddr,
    /// Hosts, ports and networks that each tenant's requests may reach; others reach nothing.
    pub egress: BTreeMap<String, Vec<String>>,
    /// Whose certificates are accepted.
    pub trust: Trust,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
}

impl ExecutorConfig {
    /// A configuration of the first epoch with the usual bounds, no egress and no cgroup.
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
