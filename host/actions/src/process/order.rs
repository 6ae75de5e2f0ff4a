//! What the daemon tells a supervisor, and what that reports.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::body::{ARGS_BYTES_MAX, ENV_BYTES_MAX, STDIN_BYTES_MAX};

/// Longest order: JSON may write a byte as six.
const ORDER_BYTES_MAX: u32 = 6 * (ARGS_BYTES_MAX + ENV_BYTES_MAX + (256 << 10)) as u32;
/// Longest report.
pub(crate) const REPORT_BYTES_MAX: u64 = 64 << 10;

/// What to run, and within which bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) command: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
    /// Bytes of its standard input, which follow the order.
    pub(crate) stdin_bytes: u32,
    /// How long it may run; a service has no bound.
    pub(crate) run_ms_max: Option<u64>,
    /// How long it has between the request to end and the end.
    pub(crate) grace_ms: u64,
    /// Where it runs; anywhere if there is none.
    pub(crate) cores: Vec<u32>,
    /// Memory of all its processes, to be watched where no cgroup bounds it.
    pub(crate) memory_bytes_max: Option<u64>,
    /// The cgroup of the action.
    pub(crate) cgroup: Option<PathBuf>,
    /// The cgroup that the supervisor goes back to.
    pub(crate) cgroup_home: Option<PathBuf>,
    /// Where it writes which processes there are.
    pub(crate) pids: PathBuf,
}

/// How it ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub(crate) enum Report {
    Exited {
        code: i32,
    },
    Killed {
        signal: i32,
    },
    TimedOut,
    OutOfMemory,
    /// The daemon asked for it, or is gone.
    Stopped,
    /// It could not be run, by no fault of its own.
    Failed {
        cause: String,
    },
}

impl Order {
    /// The order as it is sent: its length, itself, and the standard input.
    pub(crate) fn message(&self, stdin: &[u8]) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).ok();
        let length = length.filter(|length| *length <= ORDER_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("the order is too long"))?;
        let mut message = Vec::with_capacity(4 + json.len() + stdin.len());
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&json);
        message.extend_from_slice(stdin);
        Ok(message)
    }

    /// Reads an order and the standard input.
    pub(crate) fn receive(mut from: impl Read) -> io::Result<(Self, Vec<u8>)> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > ORDER_BYTES_MAX {
            return Err(io::Error::other("standard input holds no order"));
        }
        let mut json = vec![0; length as usize];
        from.read_exact(&mut json)?;
        let order: Self = serde_json::from_slice(&json)?;
        if order.stdin_bytes as usize > STDIN_BYTES_MAX {
            return Err(io::Error::other("the order's standard input is too long"));
        }
        let mut stdin = vec![0; order.stdin_bytes as usize];
        from.read_exact(&mut stdin)?;
        Ok((order, stdin))
    }
}
