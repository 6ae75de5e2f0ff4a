//! A connection to a process in a pod: the `exec` subresource over a WebSocket, where each message
//! belongs to one stream. Both directions are independent, so that a process that writes before it
//! has read all of its input does not block.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::AttachParams;
use kube::core::Request;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::client::{Failure, asked};
use crate::manifest::CONTAINER;

/// Buffer size of each stream.
const BUFFER_BYTES: usize = 64 << 10;
/// Keep-alive interval of an idle connection.
const PING: Duration = Duration::from_mins(1);
/// The numbers of the streams.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// First byte of a message that closes a stream.
const CLOSE: u8 = 255;

/// A connection to a process. Dropping it closes the connection, but does not end the process.
pub(crate) struct Connection {
    /// The standard input of the process. Dropping it closes the input.
    pub(crate) stdin: DuplexStream,
    /// Its standard output.
    pub(crate) stdout: DuplexStream,
    /// Its standard error.
    pub(crate) stderr: DuplexStream,
    /// How it ended; unknown if the channel is closed without a value.
    pub(crate) status: oneshot::Receiver<Status>,
    /// The tasks that forward the streams.
    pub(crate) passing: JoinSet<()>,
}

/// Runs a command in a pod. With `has_input`, the protocol must be able to close its input.
pub(crate) async fn connect(
    api: &Api<Pod>,
    pod: &str,
    command: &[&str],
    has_input: bool,
) -> Result<Connection, Failure> {
    let params = AttachParams {
        container: Some(CONTAINER.to_owned()),
        stdin: true,
        stdout: true,
        stderr: true,
        ..AttachParams::default()
    };
    let request = Request::new(api.resource_url())
        .exec(pod, command.iter().copied(), &params)
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let client = api.clone().into_client();
    let opened = asked(client.connect(request)).await?;
    let ends_input = opened.supports_stream_close();
    if has_input && !ends_input {
        let problem = "this API server can't end the input of a command \
                       (v5.channel.k8s.io); use Kubernetes 1.30 or later";
        return Err(Failure::Refused(problem.to_owned()));
    }
    let (sender, receiver) = opened.into_stream().split();
    let (from, stdin) = duplex(BUFFER_BYTES);
    let (stdout, out) = duplex(BUFFER_BYTES);
    let (stderr, err) = duplex(BUFFER_BYTES);
    let (told, status) = oneshot::channel();
    let mut passing = JoinSet::new();
    passing.spawn(send(sender, from, ends_input));
    passing.spawn(receive(receiver, out, err, told));
    Ok(Connection {
        stdin,
        stdout,
        stderr,
        status,
        passing,
    })
}

/// Sends the standard input, and closes it.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    mut sender: SplitSink<WebSocketStream<S>, Message>,
    mut from: DuplexStream,
    ends_input: bool,
) {
    let mut is_open = true;
    let mut bytes = vec![STDIN; BUFFER_BYTES];
    loop {
        let message = tokio::select! {
            () = tokio::time::sleep(PING) => Message::Ping(Bytes::new()),
            read = from.read(&mut bytes[1..]), if is_open => match read {
                Ok(read) if read > 0 => Message::binary(bytes[..=read].to_vec()),
                _ => {
                    is_open = false;
                    if !ends_input {
                        continue;
                    }
                    Message::binary(vec![CLOSE, STDIN])
                }
            },
        };
        if sender.send(message).await.is_err() {
            return;
        }
    }
}

/// Receives the output and the exit status.
async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    mut receiver: SplitStream<WebSocketStream<S>>,
    mut out: DuplexStream,
    mut err: DuplexStream,
    told: oneshot::Sender<Status>,
) {
    while let Some(Ok(message)) = receiver.next().await {
        let Message::Binary(bytes) = message else {
            continue;
        };
        let Some((stream, bytes)) = bytes.split_first() else {
            continue;
        };
        let taken = match *stream {
            STDOUT => out.write_all(bytes).await,
            STDERR => err.write_all(bytes).await,
            STATUS if !bytes.is_empty() => {
                if let Ok(status) = serde_json::from_slice(bytes) {
                    let _ = told.send(status);
                }
                return;
            }
            _ => Ok(()),
        };
        if taken.is_err() {
            return;
        }
    }
}
