//! The scores of `default-priority` with its default configuration, as an Extism
//! plugin: the columns in as bytes, the scores out as bytes. `treadle-bench policy`
//! checks that they are the same.

use extism_pdk::{FnResult, plugin_fn};

/// Bytes of a row: five columns of 8, one of 4.
const ROW_BYTES: usize = 44;
const TOKEN_MS: f64 = 20.0;
const AGEING: f64 = 1.0;
const UNKNOWN_S: f64 = 60.0;
const REMAINING_S_MAX: f64 = 600.0;

/// Tokens, output tokens, waited, remaining tokens, remaining seconds in tools,
/// steps: one column after the other.
#[plugin_fn]
pub fn score(input: Vec<u8>) -> FnResult<Vec<u8>> {
    let rows = input.len() / ROW_BYTES;
    let column = |index: usize| {
        let bytes = &input[index * rows * 8..(index + 1) * rows * 8];
        bytes.chunks_exact(8).map(|entry| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(entry);
            bytes
        })
    };
    let predicted = column(3).zip(column(4));
    let mut scores = Vec::with_capacity(rows * 8);
    for (waited_ms, (tokens, tool_s)) in column(2).zip(predicted) {
        let waited_ms = u64::from_le_bytes(waited_ms) as f64;
        let remaining_s = remaining_s(f64::from_le_bytes(tokens), f64::from_le_bytes(tool_s));
        let score = remaining_s + AGEING * waited_ms / 1_000.0;
        scores.extend_from_slice(&score.to_le_bytes());
    }
    Ok(scores)
}

fn remaining_s(tokens: f64, tool_s: f64) -> f64 {
    if !(tokens >= 0.0 || tool_s >= 0.0) {
        return UNKNOWN_S;
    }
    let generating_s = tokens.max(0.0) * TOKEN_MS / 1_000.0;
    (generating_s + tool_s.max(0.0)).min(REMAINING_S_MAX)
}
