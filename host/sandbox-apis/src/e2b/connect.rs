//! The Connect protocol with JSON: faults, envelopes of streams, and streams that are written while
//! their clients read.

use super::{CONNECT_JSON, JSON};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::poll_fn;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::sync::mpsc;
use treadle_runs::actions::Failure;
use treadle_runs::sandboxes::refused;
use treadle_sandbox::SandboxError;
use treadle_wire::{ErrorBody, ErrorCode};

/// Envelopes that wait for a client to read them.
const WAITING_MAX: usize = 4;
/// The head of an envelope: flags and length.
const HEAD_BYTES: usize = 5;
/// The flag of a compressed envelope, and of the last one.
const COMPRESSED: u8 = 1;
const LAST: u8 = 2;
/// Default keepalive interval of an idle stream.
const KEEPALIVE: Duration = Duration::from_secs(90);
/// The longest that a call may take.
const TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// A call ends earlier than its client's timeout, by a twentieth but at most this, so that the
/// client gets the error before it closes the connection.
const EARLY_MAX: Duration = Duration::from_millis(100);

/// A code of Connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl Code {
    const fn name_and_status(self) -> (&'static str, u16) {
        match self {
            Self::InvalidArgument => ("invalid_argument", 400),
            Self::DeadlineExceeded => ("deadline_exceeded", 504),
            Self::NotFound => ("not_found", 404),
            Self::AlreadyExists => ("already_exists", 409),
            Self::PermissionDenied => ("permission_denied", 403),
            Self::ResourceExhausted => ("resource_exhausted", 429),
            Self::FailedPrecondition => ("failed_precondition", 400),
            Self::Unimplemented => ("unimplemented", 501),
            Self::Internal => ("internal", 500),
            Self::Unavailable => ("unavailable", 503),
            Self::Unauthenticated => ("unauthenticated", 401),
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The fault that clients interpret as a missing sandbox.
    pub(super) fn gone() -> Self {
        Self::new(Code::Unavailable, "The sandbox was not found")
    }

    fn json(&self) -> Value {
        json!({"code": self.code.name_and_status().0, "message": self.message})
    }
}

impl From<&ErrorBody> for Fault {
    fn from(error: &ErrorBody) -> Self {
        let code = match error.code.status() {
            _ if error.code == ErrorCode::Overloaded => Code::ResourceExhausted,
            _ if error.code == ErrorCode::SandboxUnknown => return Self::gone(),
            400 | 413 => Code::InvalidArgument,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::NotFound,
            408 => Code::DeadlineExceeded,
            409 => Code::FailedPrecondition,
            429 => Code::ResourceExhausted,
            502..=504 => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, &error.message)
    }
}

impl From<SandboxError> for Fault {
    fn from(error: SandboxError) -> Self {
        let SandboxError::File { error: cause, .. } = &error else {
            return Self::from(&refused(&error));
        };
        let code = match cause.kind() {
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::AlreadyExists => Code::AlreadyExists,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => Self::from(&error),
            Failure::Stopped => Self::new(Code::Unavailable, "treadle is shutting down"),
            Failure::Store(error) => {
                tracing::error!(%error, "the store failed");
                Self::new(Code::Internal, "the store failed; see the log")
            }
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.name_and_status().1);
        let head = [(header::CONTENT_TYPE, JSON)];
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, head, Body::from(self.json().to_string())).into_response()
    }
}

/// The response of a unary call.
pub(super) fn unary(answered: Result<Value, Fault>) -> Response {
    match answered {
        Ok(value) => ([(header::CONTENT_TYPE, JSON)], value.to_string()).into_response(),
        Err(fault) => fault.into_response(),
    }
}

/// Refuses a call before it begins. Clients of streams read the cause from the stream: for a status
/// other than 200 they report `unknown`, or only the meaning of the status.
pub(super) fn refuse(fault: Fault, is_stream: bool) -> Response {
    if is_stream {
        return stream(|_| async { Err(fault) });
    }
    fault.into_response()
}

/// Whether a request is of this kind.
pub(super) fn is_of_kind(headers: &HeaderMap, kind: &str) -> bool {
    let own = headers
        .get(header::CONTENT_TYPE)
        .and_then(|own| own.to_str().ok());
    let own = own
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    own.trim().eq_ignore_ascii_case(kind)
}

/// Refuses a body that is not JSON, as Connect specifies.
pub(super) fn other_kind(kind: &'static str) -> Response {
    let accepted = [(
        header::HeaderName::from_static("accept-post"),
        HeaderValue::from_static(kind),
    )];
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, accepted).into_response()
}

/// Reads a message.
pub(super) fn message<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes)
        .map_err(|error| Fault::invalid(format!("the message is invalid: {error}")))
}

/// The length of the first envelope with its head, once the head has arrived.
pub(super) fn first_length(bytes: &[u8]) -> Option<usize> {
    let (head, _) = bytes.split_at_checked(HEAD_BYTES)?;
    let length = <[u8; 4]>::try_from(head.get(1..)?).ok()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    Some(HEAD_BYTES.saturating_add(length))
}

/// The messages in the envelopes of a request.
pub(super) fn envelopes(mut bytes: &[u8]) -> Result<Vec<&[u8]>, Fault> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let broken = || Fault::invalid("an envelope is cut short");
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(broken)?;
        let [flags, length @ ..] = head else {
            return Err(broken());
        };
        if flags & COMPRESSED != 0 {
            let message = "an envelope is compressed; send it uncompressed";
            return Err(Fault::new(Code::Unimplemented, message));
        }
        let length = <[u8; 4]>::try_from(length).map_err(|_| broken())?;
        let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| broken())?;
        let (message, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
        if flags & LAST == 0 {
            found.push(message);
        }
        bytes = rest;
    }
    Ok(found)
}

/// The single message of a server-streaming request.
pub(super) fn only<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    match envelopes(bytes)?[..] {
        [only] => message(only),
        _ => Err(Fault::invalid("the request must have exactly one envelope")),
    }
}

fn envelope(flags: u8, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut whole = Vec::with_capacity(HEAD_BYTES + message.len());
    whole.push(flags);
    whole.extend_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(message);
    whole.into()
}

/// Sends the messages of a stream.
#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Sends a message, and waits for the client to read. Once the client is gone, the sending task
    /// is dropped.
    pub(super) async fn send(&self, message: &impl Serialize) {
        // These messages always have a JSON form.
        let message = serde_json::to_vec(message).unwrap_or_default();
        let _ = self.0.send(envelope(0, &message)).await;
    }
}

/// Responds with a stream of the messages that `write` sends, and its result. `write` is dropped
/// once the client is gone.
pub(super) fn stream<W, F>(write: W) -> Response
where
    W: FnOnce(Sender) -> F,
    F: Future<Output = Result<(), Fault>> + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
    let written = write(Sender(sender.clone()));
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = written => ended,
            () = sender.closed() => return,
        };
        let last = match ended {
            Ok(()) => json!({}),
            Err(fault) => json!({"error": fault.json()}),
        };
        let _ = sender
            .send(envelope(LAST, last.to_string().as_bytes()))
            .await;
    });
    let body = poll_fn(move |context| {
        receiver
            .poll_recv(context)
            .map(|bytes| bytes.map(Ok::<_, Infallible>))
    });
    // Clients compare the whole value, without parameters.
    (
        [(header::CONTENT_TYPE, CONNECT_JSON)],
        Body::from_stream(body),
    )
        .into_response()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The client's timeout for the call; `None` if it has none.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let timeout = Duration::from_millis(number(headers, "connect-timeout-ms")?).min(TIMEOUT_MAX);
    Some(timeout.saturating_sub((timeout / 20).min(EARLY_MAX)))
}

/// The keepalive interval that the client requests.
pub(super) fn keepalive(headers: &HeaderMap) -> Duration {
    let asked = number(headers, "keepalive-ping-interval").filter(|seconds| *seconds > 0);
    asked.map_or(KEEPALIVE, Duration::from_secs).min(KEEPALIVE)
}

/// The fault for a call that exceeded its timeout.
pub(super) fn late() -> Fault {
    Fault::new(Code::DeadlineExceeded, "the call has timed out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    #[test]
    fn envelopes_are_read_as_they_are_written() {
        let mut bytes = envelope(0, b"{\n \"a\": 1}").to_vec();
        assert_eq!(bytes[..5], [0, 0, 0, 0, 10]);
        assert_eq!(
            only::<Value>(&bytes).expect("one").get("a"),
            Some(&json!(1))
        );
        bytes.extend(envelope(0, b""));
        bytes.extend(envelope(LAST, b"{}"));
        assert_eq!(envelopes(&bytes).expect("two").len(), 2);
        assert_eq!(
            only::<Value>(&bytes).expect_err("two").code,
            Code::InvalidArgument
        );
        for cut in [&bytes[..3], &bytes[..12], &[0, 255, 255, 255, 255]] {
            assert_eq!(envelopes(cut).expect_err("cut").code, Code::InvalidArgument);
        }
        let compressed = envelope(COMPRESSED, b"x");
        let fault = envelopes(&compressed).expect_err("compressed");
        assert_eq!(fault.code, Code::Unimplemented);
        assert!(only::<Value>(b"").is_err());
    }

    #[tokio::test]
    async fn a_stream_tells_how_it_ended() {
        let fine = stream(|sender| async move {
            sender.send(&json!({"n": 1})).await;
            Ok(())
        });
        assert_eq!(fine.headers()["content-type"], "application/connect+json");
        let bytes = to_bytes(fine.into_body(), 1_000).await.expect("it ends");
        let mut expected = envelope(0, br#"{"n":1}"#).to_vec();
        expected.extend(envelope(LAST, b"{}"));
        assert_eq!(bytes, expected);

        let failed = refuse(late(), true);
        assert_eq!(failed.status(), StatusCode::OK);
        let bytes = to_bytes(failed.into_body(), 1_000).await.expect("it ends");
        assert_eq!(bytes[0], LAST);
        assert_eq!(refuse(late(), false).status(), StatusCode::GATEWAY_TIMEOUT);
        let last: Value = serde_json::from_slice(&bytes[HEAD_BYTES..]).expect("JSON");
        assert_eq!(last["error"]["code"], "deadline_exceeded");
    }

    #[test]
    fn heads_are_read() {
        let mut headers = HeaderMap::new();
        assert_eq!((timeout(&headers), keepalive(&headers)), (None, KEEPALIVE));
        headers.insert("connect-timeout-ms", HeaderValue::from_static("1500"));
        headers.insert("keepalive-ping-interval", HeaderValue::from_static("50"));
        headers.insert(
            "content-type",
            HeaderValue::from_static("Application/JSON; charset=utf-8"),
        );
        assert_eq!(timeout(&headers), Some(Duration::from_millis(1_425)));
        assert_eq!(keepalive(&headers), Duration::from_secs(50));
        assert!(is_of_kind(&headers, JSON) && !is_of_kind(&headers, CONNECT_JSON));
    }
}
