//! Connections to another process that are upgraded to a protocol of treadle's.

use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use treadle_trust::{Connector, Stream};

/// Timeout for the other end's response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest head of an answer to the upgrade.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The address is invalid.
    #[error("{0} is not the URL of a daemon; `cluster.advertise` must be like https://host:port")]
    Address(String),
    /// The connection failed.
    #[error("no connection to {url}: {cause}; check `cluster.advertise` of that daemon")]
    Connect {
        /// The URL.
        url: String,
        /// The cause.
        cause: String,
    },
    /// The upgrade was refused.
    #[error("{url} refused the connection: {answer}")]
    Refused {
        /// The URL.
        url: String,
        /// The first line of the response.
        answer: String,
    },
}

/// Connects, and upgrades a path to a protocol.
///
/// # Errors
/// Why there is no connection.
pub async fn dial(
    url: &str,
    path: &str,
    protocol: &str,
    secret: &str,
    connector: &Connector,
) -> Result<(BufReader<ReadHalf<Stream>>, WriteHalf<Stream>), DialError> {
    let uri: Option<http::Uri> = url.parse().ok();
    let known = uri.as_ref().and_then(|uri| Some((uri, uri.authority()?)));
    let (uri, authority) = known.ok_or_else(|| DialError::Address(url.to_owned()))?;
    let failed = |cause: &dyn std::fmt::Display| DialError::Connect {
        url: url.to_owned(),
        cause: cause.to_string(),
    };
    let stream = connector.connect(uri).await;
    let (reader, mut writer) = tokio::io::split(stream.map_err(|error| failed(&error))?);
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: upgrade\r\n\
         upgrade: {protocol}\r\nauthorization: Bearer {secret}\r\n\r\n"
    );
    let asked = async {
        writer.write_all(request.as_bytes()).await?;
        writer.flush().await?;
        read_head(&mut reader).await
    };
    let status = tokio::time::timeout(HEAD_TIMEOUT, asked).await;
    let status = status.map_err(|late| failed(&late))?;
    let status = status.map_err(|error| failed(&error))?;
    if status.split(' ').nth(1) != Some("101") {
        return Err(DialError::Refused {
            url: url.to_owned(),
            answer: status,
        });
    }
    Ok((reader, writer))
}

/// Reads the head of a response; returns its first line.
async fn read_head(reader: &mut BufReader<ReadHalf<Stream>>) -> std::io::Result<String> {
    let mut bounded = reader.take(HEAD_BYTES_MAX);
    let mut status = String::new();
    bounded.read_line(&mut status).await?;
    let mut line = String::new();
    loop {
        line.clear();
        if bounded.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line.trim().is_empty() {
            return Ok(status.trim().to_owned());
        }
    }
}
