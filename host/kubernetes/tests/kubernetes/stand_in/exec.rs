//! An `exec`: a WebSocket to a process of this machine. As in a container, it leads a process
//! group, and its end is reported when nobody writes to its output any more.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::api::met;
use super::{State as Server, fixture};

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

pub(super) async fn exec(
    State(server): State<Arc<Server>>,
    uri: Uri,
    Path(pod): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    if let Some(refusal) = met(&server, "GET", &uri) {
        return refusal;
    }
    if !server.pods().contains(&pod) {
        return super::api::missing();
    }
    let command = words(&query.unwrap_or_default());
    let header = |name: &str| request.headers()[name].to_str().expect("text").to_owned();
    let accept = derive_accept_key(header("sec-websocket-key").as_bytes());
    let offered = header("sec-websocket-protocol");
    let is_old = server.lock().is_old;
    let protocol = if is_old {
        "v4.channel.k8s.io"
    } else {
        "v5.channel.k8s.io"
    };
    assert!(
        offered.split(", ").any(|offer| offer == protocol),
        "{offered}"
    );
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        run(&server, &pod, &command, socket).await;
    });
    let head = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-accept", &accept),
        ("sec-websocket-protocol", protocol),
    ];
    (
        axum::http::StatusCode::SWITCHING_PROTOCOLS,
        head,
        Body::empty(),
    )
        .into_response()
}

/// The words of a command in a query.
fn words(query: &str) -> Vec<String> {
    let pairs: Vec<(String, String)> = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(
        &format!("/?{query}").parse().expect("a query"),
    )
    .expect("pairs")
    .0;
    let pairs = pairs.into_iter().filter(|(key, _)| key == "command");
    pairs.map(|(_, word)| word).collect()
}

async fn run(server: &Server, pod: &str, command: &[String], socket: Socket) {
    let (mut sender, receiver) = socket.split();
    if server.lock().no_shell {
        let _ = sender.send(status(&fixture("exec_no_shell"))).await;
        return;
    }
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("a process");
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    server
        .lock()
        .groups
        .push((pod.to_owned(), group.expect("it runs")));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (messages, mut told) = channel(16);
    tokio::spawn(read(1, stdout.expect("piped"), messages.clone()));
    tokio::spawn(read(2, stderr.expect("piped"), messages));
    let writing = tokio::spawn(write(receiver, child.stdin.take().expect("piped")));
    if pass(&mut told, &mut sender).await.is_ok() {
        let ended = child.wait().await.expect("its end");
        let is_there = server.pods().iter().any(|there| there == pod);
        // Without the container, the connection breaks without a status.
        if is_there && server.pod(pod)["status"]["phase"] == "Running" {
            let _ = sender.send(status(&of(ended))).await;
        }
    }
    // Both halves, or the connection stays open.
    writing.abort();
    drop(sender);
    reap(child);
}

/// A process whose connection is gone continues, and is reaped.
fn reap(mut child: Child) {
    tokio::spawn(async move { child.wait().await });
}

async fn pass(
    told: &mut Receiver<Vec<u8>>,
    sender: &mut futures_util::stream::SplitSink<Socket, Message>,
) -> Result<(), ()> {
    while let Some(bytes) = told.recv().await {
        sender.send(Message::binary(bytes)).await.map_err(|_| ())?;
    }
    Ok(())
}

async fn read(stream: u8, mut from: impl AsyncRead + Unpin, to: Sender<Vec<u8>>) {
    let mut bytes = vec![stream; 8 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes[1..]).await {
        if to.send(bytes[..=read].to_vec()).await.is_err() {
            return;
        }
    }
}

async fn write(
    mut from: futures_util::stream::SplitStream<Socket>,
    mut to: tokio::process::ChildStdin,
) {
    while let Some(Ok(message)) = from.next().await {
        let Message::Binary(bytes) = message else {
            continue;
        };
        let is_over = match bytes.split_first() {
            Some((0, bytes)) => to.write_all(bytes).await.is_err(),
            // The newer protocol's message that closes a stream.
            Some((255, [0])) => true,
            _ => false,
        };
        if is_over {
            break;
        }
    }
    drop(to);
    // Pings are answered while the peer exists.
    while let Some(Ok(_)) = from.next().await {}
}

fn status(told: &Value) -> Message {
    let mut bytes = vec![3];
    bytes.extend(told.to_string().into_bytes());
    Message::binary(bytes)
}

fn of(ended: ExitStatus) -> Value {
    let code = ended.code().or(ended.signal().map(|signal| 128 + signal));
    match code {
        Some(0) => fixture("exec_success"),
        code => {
            let code = code.expect("it has ended").to_string();
            let mut status = fixture("exec_exit_code");
            status["message"] =
                format!("command terminated with non-zero exit code: exit status {code}").into();
            status["details"]["causes"][0]["message"] = code.into();
            status
        }
    }
}
