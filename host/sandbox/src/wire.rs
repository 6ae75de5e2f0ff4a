//! The messages between an agent and the first process of a sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::UserIds;

/// The setup of a sandbox. Paths are those of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The host name inside.
    pub(crate) name: String,
    /// An empty folder to mount the root on.
    pub(crate) root: PathBuf,
    /// The root first, then overlays within it.
    pub(crate) overlays: Vec<Overlay>,
    /// Folders of the machine to mount read-only: source and target.
    pub(crate) read_only: Vec<(PathBuf, PathBuf)>,
    /// Size of shared memory.
    pub(crate) shm_bytes: u64,
    /// The user id that makes the user namespace.
    pub(crate) owner: u32,
    /// Maximum size of a file.
    pub(crate) file_bytes_max: u64,
    /// Protections to leave out, so that a test can prove that they are needed.
    pub(crate) without: Vec<Guard>,
}

/// A private writable folder over read-only ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlay {
    /// Mount point inside, such as `/`.
    pub(crate) at: PathBuf,
    /// The read-only folders, uppermost first.
    pub(crate) lower: Vec<PathBuf>,
    /// The private folder.
    pub(crate) upper: PathBuf,
    /// A folder for the kernel, on the same file system.
    pub(crate) work: PathBuf,
}

/// A protection. Tests leave out each one to show what it prevents.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Root inside is an unprivileged user outside.
    UserNamespace,
    /// Only its own processes are visible.
    PidNamespace,
    /// A separate network without a connection to others.
    NetNamespace,
    /// A separate root folder.
    Root,
    /// Unneeded system calls are refused.
    Seccomp,
    /// Setuid programs give no additional rights.
    NoNewPrivileges,
    /// Kernel files that reveal information about the machine are hidden.
    MaskedProc,
    /// Limits by cgroups: memory, processes, cores.
    Cgroup,
    /// A limit on the files that it writes.
    Disk,
    /// Paths used from outside stay within its root.
    Lookup,
}

/// A request to the first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run a command. Sent with descriptors for standard input, output and error.
    Spawn {
        id: u64,
        command: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: String,
        /// User and group inside.
        user: UserIds,
    },
    /// Send a signal to a command's first process, or kill its whole process tree.
    Signal { id: u64, signal: i32, tree: bool },
}

/// A reply of the first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The setup is complete. Sent with a descriptor of the root folder.
    Ready,
    /// The setup failed.
    Failed { cause: String },
    /// A command was started.
    Spawned { id: u64, pid: i32 },
    /// A command could not be started.
    NotSpawned { id: u64, cause: String },
    /// A command's first process ended, by itself or by a signal.
    Ended {
        id: u64,
        code: Option<i32>,
        signal: Option<i32>,
    },
}
