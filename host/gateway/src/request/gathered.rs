//! Gathering an answer in one piece, so that the step can be sent elsewhere if it breaks off.

use super::cause::Cause;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header;
use hyper::http::response::Parts;
use serde::de::IgnoredAny;
use std::collections::VecDeque;
use treadle_http::InUse;

/// Answers beyond this are checked where they hold no other request up.
const CHECK_INLINE_BYTES_MAX: usize = 1 << 20;

/// An answer in one piece.
pub(super) enum Gathered {
    /// All of it.
    Whole(Bytes),
    /// It is larger than what is gathered, or there is no room for more.
    Large {
        /// What has come.
        begun: VecDeque<Bytes>,
        /// What is to come.
        rest: Incoming,
        /// Holds what has come.
        room: InUse<1>,
    },
}

/// Gathers an engine's answer.
///
/// # Errors
/// If it breaks off before it is whole, or ends in the middle: proxies end bodies in order that
/// were broken off before them.
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
                // Complete, and without the end that it announced.
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
    // What is no JSON at all, such as NaN in place of a number, is the client's to judge.
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
