//! A gateway's connection to the current scheduler.

use super::dial::{DialError, dial};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use treadle_scheduler::link::RemoteScheduler;
use treadle_scheduler::link::{FromGateway, ToGateway, Withdrawn};
use treadle_scheduler::link::{LineError, add_line, read_line};
use treadle_scheduler::link::{PATH, PROTOCOL, PULSE, SILENCE_MAX};
use treadle_trust::{Connector, Stream};

/// Pause before another attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Events sent at once.
const EVENTS_AT_ONCE: usize = 1_024;

/// The URL of the current scheduler, if a daemon schedules.
pub type Leader = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// The parameters of a connection.
pub struct Peer {
    /// The shard.
    pub shard: String,
    /// The gateway's name, for display.
    pub name: String,
    /// The daemons' shared secret.
    pub secret: String,
    /// The connector for other daemons.
    pub connector: Connector,
    /// Looks up the scheduler.
    pub leader: Box<dyn Fn() -> Leader + Send + Sync>,
    /// Aborts requests.
    pub withdraw: Box<dyn Fn(Withdrawn) + Send + Sync>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("no daemon is scheduling at present")]
    NoLeader,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{0}")]
    Line(#[from] LineError),
}

/// Keeps a connection to the scheduler, forever.
pub async fn keep_connected(remote: Arc<RemoteScheduler>, peer: Peer) {
    let mut told = String::new();
    loop {
        let Err(error) = connect_and_run(&remote, &peer).await;
        // Logged once per cause, as there may be many attempts.
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
    let path = format!("{PATH}/{}", peer.shard);
    let dialled = dial(&url, &path, PROTOCOL, &peer.secret, &peer.connector);
    let (mut reader, mut writer) = dialled.await?;
    let mut buffer = Vec::new();
    let hello = FromGateway::Hello {
        gateway: remote.gateway(),
        name: peer.name.clone(),
    };
    add_line(&mut buffer, &hello);
    write(&mut writer, &mut buffer).await?;
    let mut line = Vec::new();
    let ToGateway::Welcome { handled } = read_line(&mut reader, &mut line).await? else {
        let answer = "its first message is not a welcome".into();
        return Err(DialError::Refused { url, answer }.into());
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
        // After an outage there may be many events; each part has its own timeout.
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
        // TLS may buffer what was written.
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
