//! A hash of a JSON value that is read but never built.
//!
//! Equal values hash alike whatever their white space, escapes and order of keys. Two changes that
//! clients make from step to step, without effect on the model, are normalised: `cache_control` is
//! skipped, and a message's content given as text equals a list of that one text block.

use super::hash_key::keyed;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const STRING: u64 = 0x7374_7269_6e67;
const NUMBER: u64 = 0x6e75_6d62_6572;
const LIST: u64 = 0x6c69_7374;
const OBJECT: u64 = 0x6f62_6a65_6374;
const NULL: u64 = 0x6e75_6c6c;
const BOOLEAN: u64 = 0x626f_6f6c;

/// The hash of a chain with one more link.
pub(super) fn mix(hash: u64, next: u64) -> u64 {
    xxh3_64_with_seed(&next.to_le_bytes(), keyed(hash))
}

fn hash_of_text(text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), keyed(STRING))
}

/// The hash of `[{"type":"text","text":text}]`.
fn hash_of_text_block(text: &str) -> u64 {
    let kind = mix(hash_of_text("type"), hash_of_text("text"));
    let body = mix(hash_of_text("text"), hash_of_text(text));
    mix(LIST, mix(OBJECT, kind.wrapping_add(body)))
}

/// Reads one value, hashes it and adds the lengths of its strings and keys to `bytes`, save those
/// of attachments, whose bytes are unrelated to tokens.
pub(super) struct ValueHash<'b> {
    bytes: &'b mut u64,
    is_content: bool,
}

impl<'b> ValueHash<'b> {
    /// For any value.
    pub(super) fn new(bytes: &'b mut u64) -> Self {
        ValueHash {
            bytes,
            is_content: false,
        }
    }

    /// For the `content` of a message, where text is equivalent to a list of one text block.
    pub(super) fn of_content(bytes: &'b mut u64) -> Self {
        ValueHash {
            bytes,
            is_content: true,
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueHash<'_> {
    /// `None` for `null`.
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueHash<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(mix(BOOLEAN, u64::from(value))))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(mix(NUMBER, value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(mix(NUMBER, value.cast_unsigned())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(mix(NUMBER, value.to_bits())))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        *self.bytes += value.len() as u64;
        Ok(Some(if self.is_content {
            hash_of_text_block(value)
        } else {
            hash_of_text(value)
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut hash = LIST;
        while let Some(element) = list.next_element_seed(ValueHash::new(self.bytes))? {
            hash = mix(hash, element.unwrap_or(NULL));
        }
        Ok(Some(hash))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // A sum does not depend on the order of the entries.
        let mut sum = 0_u64;
        while let Some(key) = map.next_key_seed(KeyHash)? {
            let mut unseen = 0;
            let bytes = match key.class {
                KeyClass::Skipped => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                KeyClass::Attachment => &mut unseen,
                KeyClass::Plain => &mut *self.bytes,
            };
            *bytes += key.bytes;
            let value = map.next_value_seed(ValueHash::new(bytes))?.unwrap_or(NULL);
            sum = sum.wrapping_add(mix(key.hash, value));
        }
        Ok(Some(mix(OBJECT, sum)))
    }
}

struct Key {
    hash: u64,
    bytes: u64,
    class: KeyClass,
}

enum KeyClass {
    Plain,
    /// The value may be an image or a sound in base64.
    Attachment,
    /// The value is not visible to the model.
    Skipped,
}

struct KeyHash;

impl<'de> DeserializeSeed<'de> for KeyHash {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyHash {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        let class = match key {
            "cache_control" => KeyClass::Skipped,
            "url" | "data" | "file_data" => KeyClass::Attachment,
            _ => KeyClass::Plain,
        };
        Ok(Key {
            hash: hash_of_text(key),
            bytes: key.len() as u64,
            class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(json: &str) -> (Option<u64>, u64) {
        let mut bytes = 0;
        let mut parser = serde_json::Deserializer::from_str(json);
        let hash = ValueHash::new(&mut bytes).deserialize(&mut parser).unwrap();
        (hash, bytes)
    }

    fn content(json: &str) -> Option<u64> {
        let mut parser = serde_json::Deserializer::from_str(json);
        ValueHash::of_content(&mut 0)
            .deserialize(&mut parser)
            .unwrap()
    }

    #[test]
    fn equal_values_hash_alike() {
        let one = r#"{"a":[1,"é",null,true],"b":{"c":-1.5}}"#;
        let same = "{ \"b\" : {\"c\":-1.5 },\n\"\\u0061\":[ 1,\"\\u00e9\",null , true]}";
        assert_eq!(digest(one), digest(same));
        assert_eq!(digest(one).1, 3 + 2);
    }

    #[test]
    fn different_values_hash_apart() {
        let values = [
            "1",
            "-1",
            "1.5",
            "\"1\"",
            "true",
            "false",
            "[]",
            "{}",
            "[1]",
            "[[1]]",
            "[1,2]",
            "[2,1]",
            "[null]",
            "\"\"",
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":1}}"#,
            r#"["a",1]"#,
            r#"{"a":1}"#,
            r#"{"a":null}"#,
        ];
        for (index, value) in values.iter().enumerate() {
            for other in &values[index + 1..] {
                assert_ne!(digest(value).0, digest(other).0, "{value} {other}");
            }
        }
        assert_eq!(digest("null").0, None);
    }

    #[test]
    fn what_the_model_does_not_see_is_evened_out() {
        let block = r#"[{"text":"hi","type":"text","cache_control":{"type":"ephemeral"}}]"#;
        assert_eq!(content("\"hi\""), content(block));
        assert_ne!(content("\"hi\""), content("\"ho\""));
        assert_ne!(content("\"hi\""), digest("\"hi\"").0);
    }

    #[test]
    fn attachments_have_a_hash_but_no_bytes() {
        let (one, bytes) = digest(r#"{"image_url":{"url":"data:image/png;base64,AAAA"}}"#);
        let (other, _) = digest(r#"{"image_url":{"url":"data:image/png;base64,BBBB"}}"#);
        assert_ne!(one, other);
        assert_eq!(bytes, 9);
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = "[".repeat(100_000);
        let mut parser = serde_json::Deserializer::from_str(&deep);
        let error = ValueHash::new(&mut 0).deserialize(&mut parser).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
    }
}
