//! A scheduler's end: gateways' connections.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use treadle_auth::secret;
use treadle_core::Origin;
use treadle_http::refuse;
use treadle_model::GatewayId;
use treadle_scheduler::link::FromGateway;
use treadle_scheduler::link::{LineError, add_line, read_line};
use treadle_scheduler::link::{PROTOCOL, PULSE, SILENCE_MAX};
use treadle_scheduler::{ConnectionId, DriverHandle, DriverStopped, LinkInput};
use treadle_wire::ErrorCode;

/// Time that a gateway has for its first line.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are written at once, and have their own time: after an outage there may be many.
const WRITE_BYTES: usize = 256 << 10;
/// Messages written at once.
const MESSAGES_AT_ONCE: usize = 512;

/// What a scheduler lets gateways in with.
#[derive(Clone)]
pub(crate) struct LinkServer {
    /// The scheduler.
    pub(crate) driver: DriverHandle,
    /// Time that a gateway has to come back before its steps are over.
    pub(crate) timeout: Duration,
}

/// Whether a request carries the secret that daemons share.
pub(crate) fn knows_secret(headers: &HeaderMap, expected: &str) -> bool {
    let sent = headers.get(header::AUTHORIZATION);
    let sent = sent.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    // Digests of equal length are compared, so that time reveals nothing of the secret.
    sent.is_some_and(|sent| !expected.is_empty() && secret::hash(sent) == secret::hash(expected))
}

/// Turns a request into a gateway's connection.
pub(crate) fn serve_link(server: LinkServer, request: Request) -> Response<Body> {
    upgraded(PROTOCOL, request, move |stream| async move {
        run(&server, stream).await;
    })
}

/// Answers a request that wants to speak a protocol, and speaks it.
pub(crate) fn upgraded<F>(
    protocol: &'static str,
    mut request: Request,
    speak: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let wanted = request.headers().get(header::UPGRADE);
    if wanted.is_none_or(|wanted| wanted != protocol) {
        let message = format!("a process of another version? this one speaks {protocol}");
        return refuse(ErrorCode::InvalidField, message);
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => speak(TokioIo::new(stream)).await,
            Err(error) => tracing::debug!(%error, "a connection did not come about"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(
        header::CONNECTION,
        header::HeaderValue::from_static("upgrade"),
    );
    headers.insert(header::UPGRADE, header::HeaderValue::from_static(protocol));
    response
}

async fn run(server: &LinkServer, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let mut line = Vec::new();
    let hello = tokio::time::timeout(HELLO_TIMEOUT, read_line(&mut reader, &mut line));
    let Ok(Ok(FromGateway::Hello { gateway, name })) = hello.await else {
        tracing::warn!("a gateway's connection began without its name");
        return;
    };
    let (sender, said) = unbounded_channel();
    // The driver holds the only sender, so that the writer ends with the driver, and with another
    // connection of the same gateway.
    let Ok(connection) = server.driver.join(gateway, sender) else {
        return;
    };
    tracing::info!(%gateway, name, "a gateway is connected");
    let writing = write_lines(writer, said);
    let reading = async {
        loop {
            let said = match read_line(&mut reader, &mut line).await {
                Ok(said) => said,
                Err(error) => break error,
            };
            if take(&server.driver, gateway, connection, said).is_err() {
                break LineError::Closed;
            }
        }
    };
    let ended = tokio::select! {
        error = reading => error,
        error = writing => error,
        () = server.driver.stopped() => LineError::Closed,
    };
    tracing::warn!(%gateway, name, error = %ended, "a gateway's connection ended");
    leave(server, gateway, connection).await;
}

fn take(
    driver: &DriverHandle,
    gateway: GatewayId,
    connection: ConnectionId,
    said: FromGateway,
) -> Result<(), DriverStopped> {
    match said {
        FromGateway::Event {
            number,
            event,
            live,
        } => driver.link(LinkInput::Relayed {
            origin: Origin { gateway, number },
            event: Box::new(event),
            live: live.map(Into::into),
        }),
        FromGateway::Open { steps } => driver.link(LinkInput::Open {
            gateway,
            connection,
            steps,
        }),
        // Sent once already.
        FromGateway::Hello { .. } => Ok(()),
    }
}

/// Writes what is said, until nobody says anything any more, with signs of life between.
pub(crate) async fn write_lines<T: Serialize>(
    mut writer: impl AsyncWrite + Unpin,
    mut said: UnboundedReceiver<T>,
) -> LineError {
    let mut buffer = Vec::new();
    let mut messages = Vec::new();
    loop {
        let next = said.recv_many(&mut messages, MESSAGES_AT_ONCE);
        match tokio::time::timeout(PULSE, next).await {
            // The driver has ended, or the other end has another connection.
            Ok(0) => return LineError::Closed,
            Ok(_) => {
                for word in messages.drain(..) {
                    add_line(&mut buffer, &word);
                    if buffer.len() >= WRITE_BYTES
                        && let Err(error) = write(&mut writer, &mut buffer).await
                    {
                        return error;
                    }
                }
            }
            Err(_) => buffer.push(b'\n'),
        }
        if let Err(error) = write(&mut writer, &mut buffer).await {
            return error;
        }
    }
}

async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    buffer: &mut Vec<u8>,
) -> Result<(), LineError> {
    let written = async {
        writer.write_all(buffer).await?;
        writer.flush().await
    };
    let written = tokio::time::timeout(SILENCE_MAX, written).await;
    buffer.clear();
    Ok(written.map_err(|_| LineError::Silent)??)
}

/// The gateway has some time to come back.
async fn leave(server: &LinkServer, gateway: GatewayId, connection: ConnectionId) {
    let at = Instant::now();
    let _ = server.driver.link(LinkInput::Left {
        gateway,
        connection,
        at,
    });
    expect_back(server, gateway).await;
}

/// Ends a gateway's steps unless it is back in time.
pub(crate) async fn expect_back(server: &LinkServer, gateway: GatewayId) {
    let timeout = server.timeout;
    tokio::time::sleep(timeout).await;
    let at = Instant::now();
    let _ = server.driver.link(LinkInput::Overdue {
        gateway,
        timeout,
        at,
    });
}
