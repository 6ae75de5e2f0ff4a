//! A gateway's connection to the present scheduler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use treadle_scheduler::link::RemoteScheduler;
use treadle_scheduler::link::{FromGateway, ToGateway, Withdrawn};
use treadle_scheduler::link::{LineError, add_line, read_line};
use treadle_scheduler::link::{PATH, PROTOCOL, PULSE, SILENCE_MAX};

/// Pause before another attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
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
    #[error("{0} is not the URL of a daemon; `cluster.advertise` must be like http://host:port")]
    Address(String),
    #[error("no connection to {url}: {error}; is `cluster.advertise` of that daemon right?")]
    Connect { url: String, error: std::io::Error },
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
    writer.write_all(&buffer).await.map_err(LineError::from)?;
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
    mut writer: OwnedWriteHalf,
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

async fn write(writer: &mut OwnedWriteHalf, buffer: &mut Vec<u8>) -> Result<(), LineError> {
    if buffer.is_empty() {
        return Ok(());
    }
    let written = tokio::time::timeout(SILENCE_MAX, writer.write_all(buffer)).await;
    buffer.clear();
    Ok(written.map_err(|_| LineError::Silent)??)
}

async fn hear(
    remote: &RemoteScheduler,
    peer: &Peer,
    reader: &mut BufReader<OwnedReadHalf>,
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
) -> Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf), LinkError> {
    let authority = url
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'));
    let authority = authority.ok_or_else(|| LinkError::Address(url.to_owned()))?;
    let failed = |error| LinkError::Connect {
        url: url.to_owned(),
        error,
    };
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(authority));
    let timed_out = |_| failed(std::io::ErrorKind::TimedOut.into());
    let stream = stream.await.map_err(timed_out)?.map_err(failed)?;
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let (shard, secret) = (&peer.shard, &peer.secret);
    let request = format!(
        "GET {PATH}/{shard} HTTP/1.1\r\nhost: {authority}\r\nconnection: upgrade\r\n\
         upgrade: {PROTOCOL}\r\nauthorization: Bearer {secret}\r\n\r\n"
    );
    writer.write_all(request.as_bytes()).await.map_err(failed)?;
    let head = tokio::time::timeout(CONNECT_TIMEOUT, read_head(&mut reader));
    let status = head.await.map_err(timed_out)?.map_err(failed)?;
    if status.split(' ').nth(1) != Some("101") {
        return Err(LinkError::Refused {
            url: url.to_owned(),
            answer: status,
        });
    }
    Ok((reader, writer))
}

/// Reads the head of an answer; gives its first line.
async fn read_head(reader: &mut BufReader<OwnedReadHalf>) -> std::io::Result<String> {
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
