//! Frames between nodes that exchange KV caches, and the handles of copies in them.

use treadle_transfer::KvCopy;
use treadle_transfer::frame::{PAYLOAD_BYTES_MAX, decode, encode, read};

use super::{Target, cuts, ensure};

pub(super) const TARGET: Target = Target {
    name: "frames",
    words: &[
        b"TKV1",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x08\x00",
        b"{\"form\":1,\"copy\":{",
        b"\"at\":\"tier\"",
        b"\"at\":\"engine\"",
        b"\"bytes\":18446744073709551615",
        b"\"prefix\":",
        b"\"checksum\":null",
        b"\"verb\":\"keep\"",
        b"\"secret\":null",
        b"\"",
        b"{",
        b"}",
        b",",
        b"[",
        b"]",
    ],
    check,
    accepts,
};

fn accepts(bytes: &[u8]) -> bool {
    matches!(decode(bytes), Ok(Some(_)))
        || KvCopy::from_handle(&String::from_utf8_lossy(bytes)).is_ok()
}

fn check(bytes: &[u8]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| error.to_string())?;
    let mut rest = bytes;
    let mut payloads = Vec::new();
    while let Ok(Some((payload, left))) = decode(rest) {
        ensure(payload.len() <= PAYLOAD_BYTES_MAX, || {
            format!("a payload of {} bytes", payload.len())
        })?;
        let frame = encode(payload).map_err(|error| error.to_string())?;
        ensure(rest.strip_prefix(&frame[..]) == Some(left), || {
            "a frame is written otherwise than it was read".to_owned()
        })?;
        for at in cuts(frame.len()) {
            ensure(matches!(decode(&frame[..at]), Ok(None)), || {
                format!("the first {at} bytes of a frame are one")
            })?;
        }
        payloads.push(payload);
        rest = left;
    }
    let mut reader = bytes;
    for payload in payloads {
        let read = runtime.block_on(read(&mut reader));
        ensure(read.is_ok_and(|read| read == payload), || {
            "a connection gives another payload".to_owned()
        })?;
        handle(payload)?;
    }
    ensure(runtime.block_on(read(&mut reader)).is_err(), || {
        "a connection gives a frame more".to_owned()
    })?;
    handle(bytes)
}

/// A parsed handle is written so that it parses to an equal one.
fn handle(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let Ok(copy) = KvCopy::from_handle(&text) else {
        return Ok(());
    };
    let written = copy.to_handle().map_err(|error| error.to_string())?;
    let again = KvCopy::from_handle(&written).map_err(|error| error.to_string())?;
    ensure(again == copy, || format!("{copy:?} became {again:?}"))
}
