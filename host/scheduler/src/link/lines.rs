//! JSON lines over a connection; an empty line is a heartbeat.

use super::SILENCE_MAX;
use super::frames::LINE_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Nothing came, not even a heartbeat.
    #[error("the other end has been silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// It was closed.
    #[error("the other end closed the connection")]
    Closed,
    /// It broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    /// A line exceeds the limit.
    #[error("a line has more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A line could not be parsed.
    #[error("a line cannot be read: {0}; are all daemons of one version?")]
    Malformed(#[from] serde_json::Error),
}

/// The next line that is not empty.
pub async fn read_line<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<T, LineError> {
    loop {
        line.clear();
        let mut bounded = reader.take(LINE_BYTES_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', line);
        let read = tokio::time::timeout(SILENCE_MAX, read).await;
        match read.map_err(|_| LineError::Silent)?? {
            0 => return Err(LineError::Closed),
            n if n > LINE_BYTES_MAX => return Err(LineError::TooLong),
            1 => {}
            _ if line.last() != Some(&b'\n') => return Err(LineError::Closed),
            _ => return Ok(serde_json::from_slice(line)?),
        }
    }
}

/// Appends a line to a write buffer.
pub fn add_line(buffer: &mut Vec<u8>, value: &impl Serialize) {
    // Frames hold only strings and numbers, so serialization can't fail.
    let _ = serde_json::to_writer(&mut *buffer, value);
    buffer.push(b'\n');
}
