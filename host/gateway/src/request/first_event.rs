//! Waits for the first event of an engine's stream; until then the attempt may be repeated.
//!
//! Comments, empty events and pings are heartbeats and not part of the answer: they are held back
//! until the first event. A first chunk with only a role starts the answer, since it has the
//! answer's id.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use treadle_wire::SseScanner;

/// Most bytes of a stream that are held back. A longer event starts the answer; further comments
/// are dropped.
const HELD_BYTES_MAX: usize = 64 << 10;
/// The longest ping.
const PING_BYTES_MAX: usize = 256;

/// A stream whose first event has arrived.
pub(super) struct Begun {
    /// The bytes so far.
    pub(super) first: Bytes,
    /// The rest; `None` if the stream has ended.
    pub(super) rest: Option<Incoming>,
    /// Why it ended, if it broke off.
    pub(super) broke: Option<String>,
    /// The status in the first event, if that is an error.
    pub(super) refusal: Option<(u16, Bytes)>,
}

/// The state of a stream before its first event.
struct Beginning {
    scanner: SseScanner,
    held: BytesMut,
    is_answer: bool,
    refusal: Option<(u16, Bytes)>,
}

impl Beginning {
    fn new() -> Self {
        Self {
            scanner: SseScanner::observing(),
            held: BytesMut::new(),
            is_answer: false,
            refusal: None,
        }
    }

    /// Feeds the next bytes; true once an event of the answer has arrived.
    fn take(&mut self, data: &[u8]) -> bool {
        self.held.extend_from_slice(data);
        let (is_answer, refusal) = (&mut self.is_answer, &mut self.refusal);
        let fed = self.scanner.feed(data, &mut |event| {
            if !*is_answer && is_answer_of(event) {
                *is_answer = true;
                *refusal = refusal_of(event);
            }
        });
        // Garbage also starts the stream: it is reported within it.
        self.is_answer |= fed.is_err();
        if !self.is_answer && self.held.len() > HELD_BYTES_MAX {
            if self.scanner.is_within_data() {
                self.is_answer = true;
            } else if self.scanner.ended_cleanly() {
                self.held.clear();
            }
        }
        self.is_answer
    }

    /// At the end of the stream: true if the last event only lacks its terminator.
    fn is_whole(&self) -> bool {
        let mut probe = SseScanner::observing();
        let mut is_whole = false;
        let mut look = |event: &[u8]| is_whole |= is_answer_of(event) && is_whole_event(event);
        if probe.feed(&self.held, &mut look).is_err() {
            return false;
        }
        probe.finish(&mut look);
        is_whole
    }
}

/// Whether an event is complete.
pub(super) fn is_whole_event(event: &[u8]) -> bool {
    event.trim_ascii() == b"[DONE]" || serde_json::from_slice::<IgnoredAny>(event).is_ok()
}

fn is_answer_of(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
    }
    let event = event.trim_ascii();
    let is_ping = || {
        let typed = serde_json::from_slice::<Typed<'_>>(event);
        event.len() <= PING_BYTES_MAX && typed.is_ok_and(|typed| typed.kind == "ping")
    };
    !event.is_empty() && !is_ping()
}

/// The status in an error event, which engines send once the head of a stream is sent.
fn refusal_of(event: &[u8]) -> Option<(u16, Bytes)> {
    #[derive(Deserialize)]
    struct WithError {
        #[serde(default)]
        error: serde_json::Value,
        #[serde(default)]
        object: serde_json::Value,
        #[serde(default)]
        code: serde_json::Value,
        /// SGLang's own API ends a request that it has no room for as aborted.
        #[serde(default)]
        meta_info: serde_json::Value,
    }
    if event.len() > HELD_BYTES_MAX {
        return None;
    }
    let told: WithError = serde_json::from_slice(event).ok()?;
    let ended = &told.meta_info["finish_reason"];
    if ended["type"] == "abort" && ended["status_code"].is_u64() {
        let code = u16::try_from(ended["status_code"].as_u64()?).ok()?;
        let error = json!({"error": {"message": ended["message"], "code": code}});
        return Some((code, error.to_string().into()));
    }
    let code = if told.error.is_object() {
        &told.error["code"]
    } else {
        (told.object == "error").then_some(&told.code)?
    };
    let named = || match told.error["type"].as_str() {
        Some("overloaded_error") => Some(503),
        Some("rate_limit_error") => Some(429),
        _ => None,
    };
    let code = code
        .as_u64()
        .or_else(|| code.as_str()?.parse().ok())
        .or_else(named)?;
    Some((u16::try_from(code).ok()?, Bytes::copy_from_slice(event)))
}

/// Waits for the first event.
///
/// # Errors
/// The stream ends or breaks before it.
pub(super) async fn first_event(mut body: Incoming) -> Result<Begun, String> {
    let mut beginning = Beginning::new();
    let broke = loop {
        match body.frame().await {
            None => break None,
            Some(Err(error)) => {
                break Some(format!("the engine aborted its stream: {error}"));
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data()
                    && beginning.take(&data)
                {
                    return Ok(Begun {
                        first: beginning.held.freeze(),
                        rest: Some(body),
                        broke: None,
                        refusal: beginning.refusal,
                    });
                }
            }
        }
    };
    if beginning.is_whole() {
        return Ok(Begun {
            first: beginning.held.freeze(),
            rest: None,
            broke,
            refusal: None,
        });
    }
    let ended = || "the engine ended its stream before the first event".to_owned();
    Err(broke.unwrap_or_else(ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes of this come before the answer has begun, in pieces of `size` bytes.
    fn begins(stream: &str, size: usize) -> Option<usize> {
        let mut beginning = Beginning::new();
        let mut seen = 0;
        stream.as_bytes().chunks(size).find_map(|piece| {
            seen += piece.len();
            beginning.take(piece).then_some(seen)
        })
    }

    #[test]
    fn signs_of_life_are_no_answer() {
        let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
        for sign in [
            ": keep-alive\n\n",
            ":\r\n\r\n",
            "\n\n\n",
            "\u{feff}: a\n\n",
            "event: message\n\n",
            "id: 7\nretry: 100\n\n",
            "data:\n\n",
            "data: \n\n",
            "data\n\n",
            "data: {\"type\":\"ping\"}\n\n",
            ping,
        ] {
            for size in [1, 5, 100] {
                assert_eq!(begins(&sign.repeat(3), size), None, "{sign:?}");
                let answer = format!("{sign}data: {{}}\n\n");
                assert_eq!(begins(&answer, 1), Some(answer.len()), "{sign:?}");
            }
        }
    }

    #[test]
    fn an_answer_begins_with_its_first_whole_event() {
        let role = r#"data: {"choices":[{"delta":{"role":"assistant"}}]}"#;
        for event in [
            role,
            "data: [DONE]",
            "data: text",
            "event: message_start\ndata: {\"type\":\"message_start\"}",
        ] {
            assert_eq!(begins(event, 1), None, "{event}");
            assert_eq!(begins(&format!("{event}\n"), 1), None, "{event}");
            let whole = format!("{event}\n\n");
            assert_eq!(begins(&whole, 1), Some(whole.len()), "{event}");
        }
        let large = format!("data: {}", "x".repeat(2 * HELD_BYTES_MAX));
        assert!(
            begins(&large, 100).is_some(),
            "it is not held until its end"
        );
        assert_eq!(begins("<html>", 1), Some(1), "garbage is told as it comes");
        let comments = ": x\n\n".repeat(HELD_BYTES_MAX);
        assert_eq!(begins(&comments, 1_000), None);
    }

    #[test]
    fn a_last_event_may_lack_its_end() {
        for (stream, is_whole) in [
            ("data: {\"a\":1}", true),
            ("data: {\"a\":1}\n", true),
            ("data: [DONE]", true),
            ("data: {\"a\":", false),
            ("data: {\"a\":1}\ndata: {", false),
            (": a", false),
            ("", false),
            ("event: x", false),
        ] {
            let mut beginning = Beginning::new();
            assert!(!beginning.take(stream.as_bytes()), "{stream}");
            assert_eq!(beginning.is_whole(), is_whole, "{stream}");
        }
    }

    #[test]
    fn an_error_that_comes_first_has_its_status() {
        for (event, status) in [
            (r#"{"error":{"message":"full","code":503}}"#, Some(503)),
            (r#"{"error":{"message":"full","code":"429"}}"#, Some(429)),
            (
                r#"{"object":"error","message":"full","code":503}"#,
                Some(503),
            ),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                Some(503),
            ),
            (
                r#"{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"The request queue is full.","status_code":503}}}"#,
                Some(503),
            ),
            (
                r#"{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"stopped"}}}"#,
                None,
            ),
            (r#"{"error":{"message":"m"}}"#, None),
            (r#"{"error":null,"code":503}"#, None),
            (r#"{"choices":[],"code":503}"#, None),
            ("[DONE]", None),
        ] {
            let found = refusal_of(event.as_bytes()).map(|(status, _)| status);
            assert_eq!(found, status, "{event}");
        }
    }
}
