//! The messages between the daemon and a supervisor: frames with two lengths, JSON, and raw bytes.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::body::{ARGS_BYTES_MAX, ENV_BYTES_MAX, STDIN_BYTES_MAX};

/// Limits of a frame.
#[derive(Clone, Copy)]
pub(super) struct FrameBytesMax {
    /// Of its JSON.
    pub(super) json: usize,
    /// Of the raw bytes after it.
    pub(super) tail: usize,
}

/// Longest request, since JSON may write a byte as six, and its longest standard input.
pub(super) const REQUEST_BYTES_MAX: FrameBytesMax = FrameBytesMax {
    json: 6 * (ARGS_BYTES_MAX + ENV_BYTES_MAX + (256 << 10)),
    tail: STDIN_BYTES_MAX,
};
/// Longest reply, without output.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 10;
/// Bytes of both lengths.
const HEAD_BYTES: usize = 8;

/// A process to run, and its limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessOrder {
    pub(crate) command: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
    /// Time limit; `None` for a service.
    pub(crate) run_ms_max: Option<u64>,
    /// Time between the request to end and the kill.
    pub(crate) grace_ms: u64,
    /// Cores to run on; any if empty.
    pub(crate) cores: Vec<u32>,
    /// Limit on the memory of all its processes, polled unless a cgroup enforces it.
    pub(crate) memory_bytes_max: Option<u64>,
    /// Bytes kept of its output.
    pub(crate) output_bytes_max: usize,
    /// The cgroup of the action.
    pub(crate) cgroup: Option<PathBuf>,
    /// The cgroup that the supervisor returns to.
    pub(crate) cgroup_home: Option<PathBuf>,
}

/// A request to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Run this process. Followed by its standard input.
    Run(Box<ProcessOrder>),
    /// End the running process.
    Stop,
}

/// A reply of a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The process was started.
    Began,
    /// The process ended. Followed by its output.
    Ended {
        report: Report,
        /// Whether no process is left, so that another order may follow.
        is_clean: bool,
    },
}

/// How a process ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    Exited(i32),
    Killed(i32),
    TimedOut,
    OutOfMemory,
    /// The daemon requested it, or is gone.
    Stopped,
    /// It could not be run.
    Failed(String),
    /// Neither its start nor its end was observed.
    Lost,
}

/// Encodes a message and its raw bytes as a frame.
pub(super) fn pack(message: &impl Serialize, tail: &[u8]) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let mut frame = Vec::with_capacity(HEAD_BYTES + json.len() + tail.len());
    for part in [&json, tail] {
        let length = u32::try_from(part.len()).map_err(io::Error::other)?;
        frame.extend_from_slice(&length.to_be_bytes());
    }
    frame.extend_from_slice(&json);
    frame.extend_from_slice(tail);
    Ok(frame)
}

/// Reads the next message and its raw bytes.
///
/// # Errors
/// The system's; `UnexpectedEof` at the end.
pub(super) fn unpack<T: DeserializeOwned>(
    mut from: impl Read,
    bytes_max: FrameBytesMax,
) -> io::Result<(T, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head)?;
    let (mut json, mut tail) = room(head, bytes_max)?;
    from.read_exact(&mut json)?;
    from.read_exact(&mut tail)?;
    Ok((serde_json::from_slice(&json)?, tail))
}

/// The asynchronous form of [`unpack`].
pub(super) async fn receive<T: DeserializeOwned>(
    mut from: impl AsyncRead + Unpin,
    bytes_max: FrameBytesMax,
) -> io::Result<(T, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).await?;
    let (mut json, mut tail) = room(head, bytes_max)?;
    from.read_exact(&mut json).await?;
    from.read_exact(&mut tail).await?;
    Ok((serde_json::from_slice(&json)?, tail))
}

fn room(head: [u8; HEAD_BYTES], bytes_max: FrameBytesMax) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let both = u64::from_be_bytes(head);
    let (json, tail) = ((both >> 32) as usize, (both & u64::from(u32::MAX)) as usize);
    if json > bytes_max.json || tail > bytes_max.tail {
        return Err(io::Error::other("a frame exceeds the size limit"));
    }
    Ok((vec![0; json], vec![0; tail]))
}
