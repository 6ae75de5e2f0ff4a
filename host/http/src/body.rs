//! Reading a request's body within its bounds of size and time.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;
use treadle_wire::{ErrorBody, ErrorCode};

/// How much of a refused body is taken in before its connection closes.
const LINGER_BYTES_MAX: usize = 16 << 20;
/// For how long it is taken in.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Reads the whole body. A client that sends nothing for `timeout` is cut off, as is one that
/// announces or sends more than `bytes_max`.
pub async fn read(
    headers: &HeaderMap,
    mut body: Body,
    bytes_max: usize,
    timeout: Duration,
) -> Result<Bytes, ErrorBody> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > bytes_max) {
        tokio::spawn(linger(body));
        return Err(too_large(bytes_max));
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(timeout, body.frame())
            .await
            .map_err(|_| {
                let message = format!(
                    "the request body stalled for {} s; send it without pauses",
                    timeout.as_secs()
                );
                ErrorBody::new(ErrorCode::ClientTimeout, message)
            })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            let message = format!("the request body broke off: {error}");
            ErrorBody::new(ErrorCode::InvalidJson, message)
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let so_far = first.as_ref().map_or(0, Bytes::len) + rest.len();
        if so_far + data.len() > bytes_max {
            tokio::spawn(linger(body));
            return Err(too_large(bytes_max));
        }
        if first.is_none() {
            first = Some(data);
            continue;
        }
        if rest.is_empty() {
            rest.reserve(
                announced
                    .unwrap_or(0)
                    .saturating_sub(so_far)
                    .max(data.len()),
            );
        }
        rest.extend_from_slice(&data);
    }
    let first = first.unwrap_or_default();
    if rest.is_empty() {
        // The common case: one frame, no copy.
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}

/// Reads the rest of a refused body and drops it. A connection that is closed while its client
/// still sends is reset, and the reset overtakes the answer with the reason.
async fn linger(mut body: Body) {
    let rest = async {
        let mut left = LINGER_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(less) = left.checked_sub(length) else {
                break;
            };
            left = less;
        }
    };
    // Slow or long: either way the connection closes.
    let _ = tokio::time::timeout(LINGER_MAX, rest).await;
}

fn too_large(bytes_max: usize) -> ErrorBody {
    let message = format!(
        "the request body exceeds {bytes_max} bytes; send less or raise server.body_bytes_max"
    );
    ErrorBody::new(ErrorCode::BodyTooLarge, message)
}
