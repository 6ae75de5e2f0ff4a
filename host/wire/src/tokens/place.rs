//! Where fields are in a JSON text.

use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;

/// Places of these fields of an object, in ascending order.
pub(super) fn places(body: &[u8], names: &[&str]) -> Vec<Range<usize>> {
    let Ok(text) = str::from_utf8(body) else {
        return Vec::new();
    };
    let fields: serde_json::Result<BTreeMap<String, &RawValue>> = serde_json::from_str(text);
    let fields = fields.unwrap_or_default();
    let own = names
        .iter()
        .filter_map(|name| Some((*name, *fields.get(*name)?)));
    let mut places: Vec<Range<usize>> = own.map(|(name, value)| place(text, name, value)).collect();
    places.sort_by_key(|place| place.start);
    places
}

/// Where a field with this value is in the text that the value is a part of, from the opening quote
/// of its name to the end of its value.
pub(super) fn place(text: &str, name: &str, value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr().addr() - text.as_ptr().addr();
    let colon = text[..start].trim_end().len().saturating_sub(1);
    let quoted = text[..colon].trim_end().len();
    quoted.saturating_sub(name.len() + 2)..start + value.get().len()
}
