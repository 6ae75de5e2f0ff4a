//! Engines' reports about a step: events of streams, and whole replies.

use serde_json::Value;
use treadle_model::TOKENS_MAX;
use treadle_wire::{Endpoint, StepUsage, StreamUsage, insert_fields, usage_of_body};

use super::{Target, ensure};

/// Longest message of an engine's error that is kept.
const ERROR_BYTES_MAX: usize = 1_024;

pub(super) const TARGET: Target = Target {
    name: "usage",
    words: &[
        b"\"usage\":",
        b"\"timings\":",
        b"\"meta_info\":",
        b"\"finish_reason\":",
        b"\"error\":",
        b"\"token_ids\":[1,2]",
        b"\"content\":",
        b"\"text\":\"x\"",
        b"\"tool_calls\":[",
        b"null",
        b"\"delta\":{",
        b"\"choices\":[{",
        b"\\u0022",
        b"\\\"",
        b"18446744073709551615",
        b"1e308",
        b"-1",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\"stop_reason\":\"end_turn\"",
        b"\"message\":{",
        b"\"prompt_tokens\":",
        b"\"completion_tokens\":7",
        b"\"index\":9",
    ],
    check,
    accepts,
};

fn accepts(event: &[u8]) -> bool {
    Endpoint::ALL.into_iter().any(|endpoint| {
        let mut stream = StreamUsage::new(endpoint);
        stream.observe(event);
        let is_whole = serde_json::from_slice::<Value>(event).is_ok();
        is_whole && (usage_of_body(endpoint, event).is_some() || stream.output_tokens_seen() > 0)
    })
}

fn check(event: &[u8]) -> Result<(), String> {
    for endpoint in Endpoint::ALL {
        let mut stream = StreamUsage::new(endpoint);
        stream.observe(event);
        bounded(&stream.usage())?;
        ensure(
            stream.error().is_none_or(|e| e.len() <= ERROR_BYTES_MAX),
            || "an error without a bound".to_owned(),
        )?;
        if let Some(told) = usage_of_body(endpoint, event) {
            bounded(&told)?;
        }
        looked_at(endpoint, event, &stream)?;
    }
    Ok(())
}

fn bounded(usage: &StepUsage) -> Result<(), String> {
    let counts = [
        usage.prompt_tokens,
        usage.output_tokens,
        usage.cached_tokens,
    ];
    let most = counts.into_iter().flatten().max();
    ensure(most.is_none_or(|most| most <= TOKENS_MAX), || {
        format!("absurd counts: {usage:?}")
    })
}

/// Most events are only scanned. A field that forces full parsing, and has no meaning at its place,
/// shows whether the scan has missed anything.
fn looked_at(endpoint: Endpoint, event: &[u8], quick: &StreamUsage) -> Result<(), String> {
    let is_object = serde_json::from_slice::<Value>(event).is_ok_and(|value| value.is_object());
    let Some(marked) = insert_fields(event, &[("finish_reason", "0".to_owned())]) else {
        return Ok(());
    };
    let mut whole = StreamUsage::new(endpoint);
    whole.observe(&marked);
    let of = |usage: StepUsage| (usage.prompt_tokens, usage.cached_tokens, usage.finish);
    let is_same = of(quick.usage()) == of(whole.usage()) && quick.error() == whole.error();
    let counts = quick.output_tokens_seen() >= whole.output_tokens_seen();
    ensure(!is_object || (is_same && counts), || {
        format!("a look gives {quick:?}, a reading {whole:?}")
    })
}
