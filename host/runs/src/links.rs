//! Connections between treadle's processes: upgraded HTTP requests that carry lines.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_auth::secret;
use treadle_http::refuse;
use treadle_scheduler::link::{LineError, PULSE, SILENCE_MAX, add_line};
use treadle_wire::ErrorCode;

/// Bytes that are written at once, with a timeout of their own: after an outage there may be many.
const WRITE_BYTES: usize = 256 << 10;
/// Messages written at once.
const MESSAGES_AT_ONCE: usize = 512;

/// Whether a request carries the secret that daemons share.
pub fn knows_secret(headers: &HeaderMap, expected: &str) -> bool {
    let sent = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    // Comparing digests of equal length leaks nothing of the secret through timing.
    sent.is_some_and(|sent| !expected.is_empty() && secret::hash(sent) == secret::hash(expected))
}

/// Upgrades a request to a protocol, and runs `speak` on the connection.
pub fn upgraded<F>(
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
            Err(error) => tracing::debug!(%error, "a connection could not be established"),
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

/// Writes messages as lines until all senders are dropped, with heartbeats between.
pub async fn write_lines<T: Serialize>(
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
