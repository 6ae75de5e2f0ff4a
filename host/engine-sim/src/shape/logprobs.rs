//! Invented log-probabilities, in the format of each API.

use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_64;

use super::super::tokens::{self, TOKEN_BYTES};
use super::Shape;

/// Log-probability of a token, always the same for the same token.
fn logprob(id: u32) -> f64 {
    -((xxh3_64(&id.to_le_bytes()) % 20_000) as f64) / 10_000.0
}

/// Invented alternatives for a token, the token itself first.
fn top(id: u32, text: &str, others: usize) -> Vec<(String, f64)> {
    let letters = text.bytes().next().unwrap_or(b'a');
    let other = |place: usize| {
        let letter = char::from(b'a' + (letters.wrapping_add(place as u8)) % 26);
        (letter.to_string(), logprob(id) - place as f64)
    };
    let own = (text.to_owned(), logprob(id));
    std::iter::once(own)
        .chain((1..others).map(other))
        .take(others)
        .collect()
}

/// Log-probabilities for the tokens of a text that begins after `from` tokens of the answer, each
/// with `others` alternatives.
pub(super) fn of(shape: Shape, text: &str, from: usize, others: usize) -> String {
    let all = tokens::ids(text.as_bytes());
    let texts = text.as_bytes().chunks(TOKEN_BYTES);
    let tokens = all.iter().zip(texts).enumerate();
    let entry = |(place, (id, bytes)): (usize, (&u32, &[u8]))| {
        let (logprob, text) = (logprob(*id), String::from_utf8_lossy(bytes));
        match shape {
            Shape::Chat => {
                let top = top(*id, &text, others).into_iter();
                let top = top.map(|(text, logprob)| {
                    let bytes = text.as_bytes();
                    format!(r#"{{"token":"{text}","logprob":{logprob:.4},"bytes":{bytes:?}}}"#)
                });
                let top = top.collect::<Vec<_>>().join(",");
                format!(
                    r#"{{"token":"{text}","logprob":{logprob:.4},"bytes":{bytes:?},"top_logprobs":[{top}]}}"#
                )
            }
            Shape::Tokens => {
                format!(r#"{{"token_id":{id},"logprob":{logprob:.4},"rank":1,"top_logprobs":[]}}"#)
            }
            Shape::Sglang => format!("[{logprob:.4},{id},null]"),
            Shape::Completion => {
                let at = (from + place) * TOKEN_BYTES;
                let top = top(*id, &text, others.max(1)).into_iter();
                let top = top.map(|(text, logprob)| format!(r#""{text}":{logprob:.4}"#));
                let top = top.collect::<Vec<_>>().join(",");
                format!(r#"[{at},{logprob:.4},"{text}",{{{top}}}]"#)
            }
        }
    };
    let entries: Vec<String> = tokens.map(entry).collect();
    match shape {
        Shape::Chat | Shape::Tokens => format!(r#"{{"content":[{}]}}"#, entries.join(",")),
        Shape::Sglang => format!("[{}]", entries.join(",")),
        Shape::Completion => by_columns(&entries),
    }
}

/// Transposes rows into one list per column.
fn by_columns(rows: &[String]) -> String {
    let rows = rows.iter().map(|row| serde_json::from_str(row));
    let rows: Vec<Vec<serde_json::Value>> = rows.filter_map(Result::ok).collect();
    let mut text = "{".to_owned();
    let names = ["text_offset", "token_logprobs", "tokens", "top_logprobs"];
    for (column, name) in names.into_iter().enumerate() {
        let comma = if column == 0 { "" } else { "," };
        let cells: Vec<String> = rows.iter().map(|row| row[column].to_string()).collect();
        let _ = write!(text, r#"{comma}"{name}":[{}]"#, cells.join(","));
    }
    text.push('}');
    text
}
