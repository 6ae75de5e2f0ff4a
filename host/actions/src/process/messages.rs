//! What the daemon tells a supervisor, and what that reports: frames of a length and as many bytes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::body::{ARGS_BYTES_MAX, ENV_BYTES_MAX, STDIN_BYTES_MAX};

/// Longest request: JSON may write a byte as six.
pub(super) const REQUEST_BYTES_MAX: usize = 6 * (ARGS_BYTES_MAX + ENV_BYTES_MAX + (256 << 10));
/// Longest reply, outputs aside.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 10;
/// Longest standard input.
pub(super) const INPUT_BYTES_MAX: usize = STDIN_BYTES_MAX;

/// What to run, and within which bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessOrder {
    pub(crate) command: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
    /// How long it may run; a service has no bound.
    pub(crate) run_ms_max: Option<u64>,
    /// How long it has between the request to end and the end.
    pub(crate) grace_ms: u64,
    /// Where it runs; anywhere if there is none.
    pub(crate) cores: Vec<u32>,
    /// Memory of all its processes, to be watched where no cgroup bounds it.
    pub(crate) memory_bytes_max: Option<u64>,
    /// Bytes of its output that are kept.
    pub(crate) output_bytes_max: usize,
    /// The cgroup of the action.
    pub(crate) cgroup: Option<PathBuf>,
    /// The cgroup that the supervisor goes back to.
    pub(crate) cgroup_home: Option<PathBuf>,
}

/// What a supervisor is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Run this. A frame with the standard input follows.
    Run(Box<ProcessOrder>),
    /// End what runs.
    Stop,
}

/// What a supervisor tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The process was executed.
    Began,
    /// How it ended. A frame with the output follows.
    Ended {
        report: Report,
        /// Whether nothing of it is left, so that another order may follow.
        is_clean: bool,
    },
}

/// How it ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    Exited(i32),
    Killed(i32),
    TimedOut,
    OutOfMemory,
    /// The daemon asked for it, or is gone.
    Stopped,
    /// It could not be run, or nobody saw its end.
    Failed(String),
}

/// A message as a frame, behind those that `to` has.
pub(super) fn put(to: &mut Vec<u8>, message: &impl Serialize) -> io::Result<()> {
    put_bytes(to, &serde_json::to_vec(message)?)
}

/// Bytes as a frame, behind those that `to` has.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(bytes)
}

/// The bytes of the next frame.
///
/// # Errors
/// The system's; `UnexpectedEof` where there is none.
pub(super) fn get_bytes(mut from: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut bytes = room(u32::from_be_bytes(length), bytes_max)?;
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The next message.
///
/// # Errors
/// As those of [`get_bytes`].
pub(super) fn get<T: DeserializeOwned>(from: impl Read, bytes_max: usize) -> io::Result<T> {
    Ok(serde_json::from_slice(&get_bytes(from, bytes_max)?)?)
}

/// As [`get_bytes`].
pub(super) async fn receive_bytes(
    mut from: impl AsyncRead + Unpin,
    bytes_max: usize,
) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let mut bytes = room(length, bytes_max)?;
    from.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// As [`get`].
pub(super) async fn receive<T: DeserializeOwned>(
    from: impl AsyncRead + Unpin,
    bytes_max: usize,
) -> io::Result<T> {
    let bytes = receive_bytes(from, bytes_max).await?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn room(length: u32, bytes_max: usize) -> io::Result<Vec<u8>> {
    let length = length as usize;
    if length > bytes_max {
        return Err(io::Error::other("a frame is longer than it may be"));
    }
    Ok(vec![0; length])
}
