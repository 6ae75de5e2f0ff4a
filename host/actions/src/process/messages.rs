//! What the daemon tells a supervisor, and what that reports: frames of two lengths, JSON, and bytes
//! that go with it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::body::{ARGS_BYTES_MAX, ENV_BYTES_MAX, STDIN_BYTES_MAX};

/// Longest request, for JSON may write a byte as six, and its longest standard input.
pub(super) const REQUEST_BYTES_MAX: (usize, usize) = (
    6 * (ARGS_BYTES_MAX + ENV_BYTES_MAX + (256 << 10)),
    STDIN_BYTES_MAX,
);
/// Longest reply, outputs aside.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 10;
/// Bytes of both lengths.
const HEAD_BYTES: usize = 8;

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
    /// Run this. The standard input goes with it.
    Run(Box<ProcessOrder>),
    /// End what runs.
    Stop,
}

/// What a supervisor tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The process was executed.
    Began,
    /// How it ended. The output goes with it.
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
    /// It could not be run.
    Failed(String),
    /// Nobody saw its end, nor whether it began.
    Lost,
}

/// A message as a frame, with the bytes that go with it.
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

/// The next message, and the bytes that go with it.
///
/// # Errors
/// The system's; `UnexpectedEof` where there is none.
pub(super) fn unpack<T: DeserializeOwned>(
    mut from: impl Read,
    bytes_max: (usize, usize),
) -> io::Result<(T, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head)?;
    let (mut json, mut tail) = room(head, bytes_max)?;
    from.read_exact(&mut json)?;
    from.read_exact(&mut tail)?;
    Ok((serde_json::from_slice(&json)?, tail))
}

/// As [`unpack`].
pub(super) async fn receive<T: DeserializeOwned>(
    mut from: impl AsyncRead + Unpin,
    bytes_max: (usize, usize),
) -> io::Result<(T, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).await?;
    let (mut json, mut tail) = room(head, bytes_max)?;
    from.read_exact(&mut json).await?;
    from.read_exact(&mut tail).await?;
    Ok((serde_json::from_slice(&json)?, tail))
}

fn room(head: [u8; HEAD_BYTES], bytes_max: (usize, usize)) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let both = u64::from_be_bytes(head);
    let (json, tail) = ((both >> 32) as usize, (both & u64::from(u32::MAX)) as usize);
    if json > bytes_max.0 || tail > bytes_max.1 {
        return Err(io::Error::other("a frame is longer than it may be"));
    }
    Ok((vec![0; json], vec![0; tail]))
}
