//! A gateway's connection to the present scheduler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use treadle_scheduler::link::RemoteScheduler;
use treadle_scheduler::link::{FromGateway, ToGateway, Withdrawn};
use treadle_scheduler::link::{LineError, add_line, read_line};
use treadle_scheduler::link::{PATH, PROTOCOL, PULSE, SILENCE_MAX};
use treadle_trust::{Connector, Stream};

/// Pause before another attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time for a scheduler to answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest head of an answer to the upgrade.
const HEAD_BYTES_MAX: u64 = 16 << 10;
/// Events sent at once.
const EVENTS_AT_ONCE: usize = 1_024;

/// The present scheduler, by URL; nothing while there is none.
pub type Leader = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// What a connection needs.
pub struct Peer {
    /// The shard.
    pub shard: String,
    /// The gateway's name, for people.
    pub name: String,
    /// What daemons share.
    pub secret: String,
    /// What opens connections to other daemons.
    pub connector: Connector,
    /// Looks up who schedules.
    pub leader: Box<dyn Fn() -> Leader + Send + Sync>,
    /// Withdraws requests.
    pub withdraw: Box<dyn Fn(Withdrawn) + Send + Sync>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("no daemon schedules at present")]
    NoLeader,
    #[error("{0} is not the URL of a daemon; `cluster.advertise` must be like https://host:port")]
    Address(String),
    #[error("no connection to {url}: {cause}; is `cluster.advertise` of that daemon right?")]
    Connect { url: String, cause: String },
    #[error("{url} does not take gateways: {answer}")]
    Refused { url: String, answer: String },
    #[error("{0}")]
    Line(#[from] LineError),
}

/// Stays connected for ever.
pub async fn keep_connected(remote: Arc<RemoteScheduler>, peer: Peer) {
    let mut told = String::new();
    loop {
        let Err(error) = connect_and_run(&remote, &peer).await;
        // Once for each cause, as there may be many attempts.
        let text = error.to_string();
        if text != told {
            tracing::warn!(
                shard = peer.shard,
                error = text,
                "not connected to a scheduler"
            );
            told = text;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn connect_and_run(
    remote: &RemoteScheduler,
    peer: &Peer,
) -> Result<std::convert::Infallible, LinkError> {
    let url = (peer.leader)().await.ok_or(LinkError::NoLeader)?;
    let (mut reader, mut writer) = connect(&url, peer).await?;
    let mut buffer = Vec::new();
    let hello = FromGateway::Hello {
        gateway: remote.gateway(),
        name: peer.name.clone(),
    };
    add_line(&mut buffer, &hello);
    write(&mut writer, &mut buffer).await?;
    let mut line = Vec::new();
    let ToGateway::Welcome { handled } = read_line(&mut reader, &mut line).await? else {
        let answer = "it does not begin with a welcome".into();
        return Err(LinkError::Refused { url, answer });
    };
    tracing::info!(url, shard = peer.shard, "connected to a scheduler");
    let sending = send(remote, writer, remote.resume(handled));
    let hearing = hear(remote, peer, &mut reader, &mut line);
    let ended = tokio::select! {
        ended = sending => ended,
        ended = hearing => ended,
    };
    Err(ended.into())
}

async fn send(
    remote: &RemoteScheduler,
    mut writer: WriteHalf<Stream>,
    mut frames: Vec<FromGateway>,
) -> LineError {
    let mut buffer = Vec::new();
    loop {
        // After an outage there may be many; each part has its own time.
        for part in frames.chunks(EVENTS_AT_ONCE) {
            for frame in part {
                add_line(&mut buffer, frame);
            }
            if let Err(error) = write(&mut writer, &mut buffer).await {
                return error;
            }
        }
        if let Err(error) = write(&mut writer, &mut buffer).await {
            return error;
        }
        frames = remote.unsent(EVENTS_AT_ONCE);
        if frames.is_empty() {
            let woken = tokio::time::timeout(PULSE, remote.wake.notified());
            if woken.await.is_err() {
                buffer.push(b'\n');
            }
        }
    }
}

async fn write(writer: &mut WriteHalf<Stream>, buffer: &mut Vec<u8>) -> Result<(), LineError> {
    if buffer.is_empty() {
        return Ok(());
    }
    let written = tokio::time::timeout(SILENCE_MAX, async {
        writer.write_all(buffer).await?;
        // TLS may hold back what it was given.
        writer.flush().await
    });
    let written = written.await;
    buffer.clear();
    Ok(written.map_err(|_| LineError::Silent)??)
}

async fn hear(
    remote: &RemoteScheduler,
    peer: &Peer,
    reader: &mut BufReader<ReadHalf<Stream>>,
    line: &mut Vec<u8>,
) -> LineError {
    loop {
        match read_line(reader, line).await {
            Ok(ToGateway::Withdraw(withdrawn)) => (peer.withdraw)(withdrawn),
            Ok(said) => remote.hear(said),
            Err(error) => return error,
        }
    }
}

/// Connects, and upgrades to the link's protocol.
async fn connect(
    url: &str,
    peer: &Peer,
) -> Result<(BufReader<ReadHalf<Stream>>, WriteHalf<Stream>), LinkError> {
    let uri: Option<http::Uri> = url.parse().ok();
    let known = uri.as_ref().and_then(|uri| Some((uri, uri.authority()?)));
    let (uri, authority) = known.ok_or_else(|| LinkError::Address(url.to_owned()))?;
    let failed = |cause: &dyn std::fmt::Display| LinkError::Connect {
        url: url.to_owned(),
        cause: cause.to_string(),
    };
    let stream = peer.connector.connect(uri).await;
    let (reader, mut writer) = tokio::io::split(stream.map_err(|error| failed(&error))?);
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let (shard, secret) = (&peer.shard, &peer.secret);
    let request = format!(
        "GET {PATH}/{shard} HTTP/1.1\r\nhost: {authority}\r\nconnection: upgrade\r\n\
         upgrade: {PROTOCOL}\r\nauthorization: Bearer {secret}\r\n\r\n"
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
        return Err(LinkError::Refused {
            url: url.to_owned(),
            answer: status,
        });
    }
    Ok((reader, writer))
}

/// Reads the head of an answer; gives its first line.
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
