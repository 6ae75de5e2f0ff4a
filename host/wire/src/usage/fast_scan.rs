//! A fast scan that suffices for most events: whether an event adds output, and whether it needs
//! parsing.

use memchr::{memchr, memchr2};

/// Types of events that end an answer.
const ENDS: [&[u8]; 6] = [
    b"\"message_stop\"",
    b"\"error\"",
    b"\"response.completed\"",
    b"\"response.incomplete\"",
    b"\"response.failed\"",
    b"\"response.cancelled\"",
];

/// The result of a scan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FastScan {
    /// At most a piece of the output.
    Plain {
        /// Whether there is such a piece.
        has_output: bool,
    },
    /// It has other content, or is malformed.
    NeedsParse,
}

/// Scans from string to string, so that quotes and braces within strings don't matter, and checks
/// only the keys.
pub(super) fn fast_scan(event: &[u8]) -> FastScan {
    let mut has_output = false;
    let mut rest = event;
    while let Some(quote) = memchr(b'"', rest) {
        rest = &rest[quote + 1..];
        let Some((length, is_escaped)) = string_length(rest) else {
            return FastScan::NeedsParse;
        };
        let key = &rest[..length];
        rest = &rest[length + 1..];
        let Some(value) = value_behind(rest) else {
            continue;
        };
        if is_escaped {
            return FastScan::NeedsParse;
        }
        match key {
            b"usage" | b"timings" | b"error" | b"finish_reason" | b"stop_reason" | b"token_ids"
            | b"meta_info"
                if !value.starts_with(b"null") =>
            {
                return FastScan::NeedsParse;
            }
            b"type" | b"object" if ENDS.iter().any(|end| value.starts_with(end)) => {
                return FastScan::NeedsParse;
            }
            b"content" | b"reasoning_content" | b"reasoning" | b"text" | b"thinking"
            | b"partial_json" | b"delta" => {
                has_output |= value.starts_with(b"\"") && !value.starts_with(b"\"\"");
            }
            b"tool_calls" => {
                has_output |= value
                    .strip_prefix(b"[")
                    .is_some_and(|list| !skip_space(list).starts_with(b"]"));
            }
            _ => {}
        }
    }
    FastScan::Plain { has_output }
}

/// The length of a string up to its closing quote, and whether anything in it is escaped.
fn string_length(text: &[u8]) -> Option<(usize, bool)> {
    let mut at = 0;
    let mut is_escaped = false;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some((at, is_escaped));
        }
        is_escaped = true;
        at += 2;
    }
}

/// The value of a key, or `None` after a string that is not a key.
fn value_behind(rest: &[u8]) -> Option<&[u8]> {
    skip_space(rest).strip_prefix(b":").map(skip_space)
}

fn skip_space(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}
