//! Reading a request's body with limits on size and time.

use crate::coding::Coding;
use crate::tally::InUse;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::Instant;
use treadle_wire::{ErrorBody, ErrorCode};

/// Minimum mean rate of a body in bytes per second, after the time allowed for the first pause.
const LEAST_BYTES_PER_S: u64 = 64 << 10;
/// Largest buffer that is allocated because of an announced length.
const ANNOUNCED_ROOM_MAX: usize = 1 << 20;

/// Limits on a body.
#[derive(Debug)]
pub struct BodyLimits {
    /// Its size, both as sent and as decoded.
    pub bytes_max: usize,
    /// The longest pause within it. After this time 64 KiB must arrive per second.
    pub pause_max: Duration,
    /// The tallies of its bytes: those of all bodies, and those of its tenant.
    pub in_use: InUse<2>,
}

/// Reads the whole body, and returns the permit for its bytes, to be held as long as they are.
/// Clients that pause too long, send too slowly, or announce or send too much are refused.
/// Compressed bodies are decoded, and their headers adapted.
///
/// # Errors
/// `body_too_large`, `client_timeout`, `overloaded` or `tenant_busy` if memory for bodies is full,
/// `invalid_json` if the body ends early, `unsupported_encoding`.
pub async fn read(
    headers: &mut HeaderMap,
    body: Body,
    mut limits: BodyLimits,
) -> Result<(Bytes, InUse<2>), ErrorBody> {
    let coding = Coding::of(headers)?;
    let sent = read_sent(headers, body, &mut limits).await?;
    headers.remove(header::CONTENT_ENCODING);
    let Some(coding) = coding else {
        return Ok((sent, limits.in_use));
    };
    let (bytes_max, mut in_use) = (limits.bytes_max, limits.in_use);
    let hold = |more| in_use.grow(more).map_err(too_many);
    let decoded = coding.decode(&sent, bytes_max, hold).await?;
    headers.remove(header::CONTENT_LENGTH);
    let decoded = decoded.ok_or_else(|| too_large(bytes_max))?;
    Ok((decoded, in_use))
}

/// The body as it was sent.
async fn read_sent(
    headers: &HeaderMap,
    mut body: Body,
    limits: &mut BodyLimits,
) -> Result<Bytes, ErrorBody> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limits.bytes_max) {
        return Err(too_large(limits.bytes_max));
    }
    let began = Instant::now();
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let so_far = first.as_ref().map_or(0, Bytes::len) + rest.len();
        let Some(data) = next_part(&mut body, began, so_far, limits.pause_max).await? else {
            break;
        };
        if so_far + data.len() > limits.bytes_max {
            return Err(too_large(limits.bytes_max));
        }
        if let Err(tally) = limits.in_use.grow(data.len() as u64) {
            return Err(too_many(tally));
        }
        if first.is_none() {
            first = Some(data);
            continue;
        }
        if rest.is_empty() {
            let announced = announced.unwrap_or(0).saturating_sub(so_far);
            rest.reserve(announced.min(ANNOUNCED_ROOM_MAX).max(data.len()));
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

/// The next bytes of a body; `so_far` have arrived since it `began`. `None` at its end.
async fn next_part(
    body: &mut Body,
    began: Instant,
    so_far: usize,
    pause_max: Duration,
) -> Result<Option<Bytes>, ErrorBody> {
    let deadline = deadline(began, Instant::now(), so_far, pause_max);
    loop {
        let frame = tokio::time::timeout_at(deadline, body.frame()).await;
        let frame = frame.map_err(|_| {
            let message = format!(
                "the request body stalled: it may pause for at most {} s and must then arrive at \
                 {LEAST_BYTES_PER_S} bytes per second or faster; send it without pauses",
                pause_max.as_secs()
            );
            ErrorBody::new(ErrorCode::ClientTimeout, message)
        })?;
        let Some(frame) = frame else {
            return Ok(None);
        };
        let frame = frame.map_err(|error| {
            let message = format!("the request body ended early: {error}");
            ErrorBody::new(ErrorCode::InvalidJson, message)
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// The deadline of the next bytes: received bytes earn time, up to the longest pause.
fn deadline(began: Instant, now: Instant, so_far: usize, pause_max: Duration) -> Instant {
    let earned = Duration::from_millis(so_far as u64 * 1_000 / LEAST_BYTES_PER_S);
    (began + pause_max + earned).min(now + pause_max)
}

/// The limit on bytes of bodies is reached: of all tenants (0), or of the caller's (1).
fn too_many(tally: usize) -> ErrorBody {
    if tally == 0 {
        let message = "the daemon's memory for request bodies is full; retry, or raise \
                       server.bodies_bytes_max";
        return ErrorBody::new(ErrorCode::Overloaded, message);
    }
    let message = "the tenant's memory for request bodies is full; send fewer at once, or have the \
                   tenant's `bodies_bytes` raised";
    ErrorBody::new(ErrorCode::TenantBusy, message)
}

fn too_large(bytes_max: usize) -> ErrorBody {
    let message = format!(
        "the request body exceeds {bytes_max} bytes; send less or raise server.body_bytes_max"
    );
    ErrorBody::new(ErrorCode::BodyTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;
    use std::sync::Arc;

    const PAUSE: Duration = Duration::from_mins(1);

    fn limits(all: &Arc<Tally>, all_max: u64, own_max: u64) -> BodyLimits {
        BodyLimits {
            bytes_max: 1 << 30,
            pause_max: PAUSE,
            in_use: InUse::new([(all.clone(), all_max), (Arc::default(), own_max)]),
        }
    }

    async fn outcome(body: Body, limits: BodyLimits) -> Result<usize, ErrorCode> {
        let read = read(&mut HeaderMap::new(), body, limits).await;
        read.map(|(bytes, _)| bytes.len())
            .map_err(|error| error.code)
    }

    #[test]
    fn a_body_that_trickles_in_gets_no_more_time() {
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let deadline = |so_far: usize, now_s: u64| deadline(began, at(now_s), so_far, PAUSE);
        assert_eq!(deadline(0, 0), at(60));
        // A byte every half a minute.
        assert_eq!(deadline(1, 30), at(60));
        assert_eq!(deadline(2, 60), at(60));
        // 100 KB/s, a quarter of an hour long; then silence.
        assert_eq!(deadline(90_000_000, 900), at(960));
    }

    #[tokio::test]
    async fn bodies_of_all_together_are_bounded_and_given_back() {
        let all = Arc::new(Tally::default());
        let body = || Body::from(vec![b'x'; 600]);
        let (_, held) = read(&mut HeaderMap::new(), body(), limits(&all, 1_000, 1_000))
            .await
            .unwrap();
        let refused = outcome(body(), limits(&all, 1_000, 1_000)).await;
        assert_eq!(refused, Err(ErrorCode::Overloaded));
        assert_eq!(all.used(), 600);
        drop(held);
        assert_eq!(outcome(body(), limits(&all, 1_000, 1_000)).await, Ok(600));
        let refused = outcome(body(), limits(&all, 1_000, 500)).await;
        assert_eq!(refused, Err(ErrorCode::TenantBusy));
        assert_eq!(all.used(), 0);
    }
}
