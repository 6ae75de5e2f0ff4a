//! Interprets statuses with which an engine or its proxy temporarily refuses a request.

use crate::error_event::words_of;

/// Why a step was turned away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TurnedAway {
    /// The engine is healthy but at capacity.
    Busy,
    /// The engine does not serve yet, or has failed: it gets no requests until its health page
    /// recovers.
    Down,
    /// A transient failure on the way; another attempt may succeed.
    Passing,
}

/// Messages of engines that are loading their models: llama.cpp and similar servers.
const LOADING: [&str; 4] = [
    "loading model",
    "model is loading",
    "still loading",
    "warming up",
];
/// Messages of engines that have failed: vLLM and similar servers.
const DEAD: [&str; 4] = [
    "enginedeaderror",
    "engine is dead",
    "enginecore encountered an issue",
    "background loop has errored",
];
/// Messages of engines at capacity: SGLang, vLLM, and proxies.
const BUSY: [&str; 10] = [
    "queue is full",
    "queue full",
    "queue limit",
    "too many requests",
    "overloaded",
    "at capacity",
    "server is busy",
    "server busy",
    "no slot available",
    "rate limit",
];

impl TurnedAway {
    /// The meaning of a status; `retries` if it has `Retry-After`. `None` for other responses.
    pub fn of(status: u16, retries: bool, body: &[u8]) -> Option<Self> {
        match status {
            429 => Some(Self::Busy),
            503 => Some(Self::of_words(retries, &words_of(body).to_lowercase())),
            502 | 504 => Some(Self::Passing),
            _ => None,
        }
    }

    fn of_words(retries: bool, words: &str) -> Self {
        let says = |known: &[&str]| known.iter().any(|known| words.contains(known));
        if says(&DEAD) || says(&LOADING) {
            Self::Down
        } else if retries || says(&BUSY) {
            Self::Busy
        } else {
            Self::Passing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TurnedAway::{Busy, Down, Passing};

    #[test]
    fn the_forms_of_a_503_are_told_apart() {
        let sglang = r#"{"error":{"message":"The request queue is full.","type":"ServiceUnavailable","code":503}}"#;
        let llama_cpp =
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
        let dead = r#"{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","code":503}}"#;
        let flat = r#"{"object":"error","message":"Server is overloaded","code":503}"#;
        for (status, retries, body, expected) in [
            (503, false, sglang, Some(Busy)),
            (503, true, "", Some(Busy)),
            (503, true, "<html>upstream</html>", Some(Busy)),
            (503, false, flat, Some(Busy)),
            (503, false, llama_cpp, Some(Down)),
            (503, true, llama_cpp, Some(Down)),
            (503, false, dead, Some(Down)),
            (503, false, "", Some(Passing)),
            (503, false, "no healthy upstream", Some(Passing)),
            (502, true, "", Some(Passing)),
            (504, false, "", Some(Passing)),
            (429, false, "", Some(Busy)),
            (429, true, sglang, Some(Busy)),
            (500, false, dead, None),
            (400, true, sglang, None),
            (200, true, sglang, None),
        ] {
            let found = TurnedAway::of(status, retries, body.as_bytes());
            assert_eq!(found, expected, "{status} {retries} {body}");
        }
    }
}
