//! Buffers a non-streaming response, so that the step can be retried elsewhere if it breaks off.

use super::cause::Cause;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header;
use hyper::http::response::Parts;
use serde::de::IgnoredAny;
use std::collections::VecDeque;
use treadle_http::InUse;

/// Larger responses are checked in `block_in_place`.
const CHECK_INLINE_BYTES_MAX: usize = 1 << 20;

/// A non-streaming response.
pub(super) enum Gathered {
    /// All of it.
    Whole(Bytes),
    /// It exceeds the buffer's limit, or memory for responses is full.
    Large {
        /// The bytes so far.
        begun: VecDeque<Bytes>,
        /// The rest.
        rest: Incoming,
        /// The permit for the bytes so far.
        room: InUse<1>,
    },
}

/// Buffers an engine's response.
///
/// # Errors
/// It breaks off, or ends in the middle: proxies properly end bodies that broke off behind them.
pub(super) async fn gather(
    parts: &Parts,
    mut body: Incoming,
    bytes_max: usize,
    mut room: InUse<1>,
) -> Result<Gathered, Cause> {
    let (mut pieces, mut bytes) = (VecDeque::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                // Complete, but without the announced end.
                let whole = concat(pieces);
                if fault_of(&whole).is_none() {
                    return Ok(Gathered::Whole(room.hold(whole)));
                }
                return Err(format!("the engine aborted its response: {error}").into());
            }
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        bytes += data.len();
        let has_room = room.grow(data.len() as u64).is_ok();
        pieces.push_back(data);
        if bytes > bytes_max || !has_room {
            return Ok(Gathered::Large {
                begun: pieces,
                rest: body,
                room,
            });
        }
    }
    let whole = concat(pieces);
    // Other invalid JSON, such as NaN instead of a number, is passed to the client.
    let is_cut = || fault_of(&whole).is_some_and(|fault| fault.is_eof());
    if parts.status.is_success() && is_json(parts) && is_cut() {
        return Err("the engine's answer ends in the middle".to_owned().into());
    }
    Ok(Gathered::Whole(room.hold(whole)))
}

fn is_json(parts: &Parts) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

fn fault_of(body: &[u8]) -> Option<serde_json::Error> {
    let check = || serde_json::from_slice::<IgnoredAny>(body).err();
    if body.len() > CHECK_INLINE_BYTES_MAX {
        tokio::task::block_in_place(check)
    } else {
        check()
    }
}

fn concat(mut pieces: VecDeque<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}
