//! Versions of weights that answers name for ranges of their tokens.

use serde::{Deserialize, Deserializer};

/// Output tokens that were sampled under the same weights.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct NamedSpan {
    /// First token, counted from the start of the output.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// The engine's name for the weights.
    #[serde(deserialize_with = "name")]
    pub version: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(u64),
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Name::deserialize(deserializer)? {
        Name::Text(name) => name,
        Name::Number(number) => number.to_string(),
    })
}

/// Whether these cover all of the output once, in order.
pub(super) fn cover(spans: &[NamedSpan], tokens: usize) -> bool {
    let mut known = 0;
    let follows = |span: &NamedSpan| {
        let follows = span.start == known && span.end > span.start;
        known = span.end;
        follows
    };
    spans.iter().all(follows) && known == tokens
}
