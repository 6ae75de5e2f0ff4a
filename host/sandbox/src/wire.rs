//! What an agent tells the first process of a sandbox, and what that answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the sandbox is made of. Paths are those of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The host name inside.
    pub(crate) name: String,
    /// An empty folder to mount the root on.
    pub(crate) root: PathBuf,
    /// The root first, then what lies within it.
    pub(crate) overlays: Vec<Overlay>,
    /// Folders of the machine that are seen as they are, read-only: where from, where to.
    pub(crate) read_only: Vec<(PathBuf, PathBuf)>,
    /// Bytes of shared memory.
    pub(crate) shm_bytes: u64,
    /// The user of the machine that makes the user namespace.
    pub(crate) owner: u32,
    /// What no file may be longer than.
    pub(crate) file_bytes_max: u64,
    /// Protections that are left out, to prove by a test that they are needed.
    pub(crate) without: Vec<Guard>,
}

/// A private writable folder over read-only ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlay {
    /// Where it is inside, such as `/`.
    pub(crate) at: PathBuf,
    /// The read-only folders, uppermost first.
    pub(crate) lower: Vec<PathBuf>,
    /// The private folder.
    pub(crate) upper: PathBuf,
    /// A folder for the kernel, on the same file system.
    pub(crate) work: PathBuf,
}

/// A protection. Each one can be left out by tests, which show what it is there for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Root inside is nobody outside.
    UserNamespace,
    /// Its own processes only.
    PidNamespace,
    /// Its own network, without any way out.
    NetNamespace,
    /// Its own root folder.
    Root,
    /// System calls that sandboxes have no use for are refused.
    Seccomp,
    /// No program gives its user more than that user has.
    NoNewPrivileges,
    /// Files of the kernel that tell of the machine are hidden.
    MaskedProc,
    /// Bounds by cgroups: memory, processes, cores.
    Cgroup,
    /// A bound on what it writes to disk.
    Disk,
    /// Paths that are used from outside stay within its root.
    Lookup,
}

/// What the first process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run a command. Its standard input, output and error output go with it.
    Spawn {
        id: u64,
        command: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: String,
        /// User and group inside.
        user: (u32, u32),
    },
    /// Send a signal to a command's first process, or end all that descends from it.
    Signal { id: u64, signal: i32, tree: bool },
}

/// What the first process tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// All is in place; the root folder goes with it.
    Ready,
    /// It is not to be.
    Failed { cause: String },
    /// A command runs.
    Spawned { id: u64, pid: i32 },
    /// A command can't be run.
    NotSpawned { id: u64, cause: String },
    /// A command's first process ended, by itself or by a signal.
    Ended {
        id: u64,
        code: Option<i32>,
        signal: Option<i32>,
    },
}
