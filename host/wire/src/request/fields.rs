//! Decodes a request's small fields from the raw text that the pass over the body collected.

use crate::error::{ErrorCode, RequestError};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use treadle_model::{ClientName, TOKENS_MAX, reported_tokens};

/// A field with a wrong value. `expected` completes the sentence "x must be ...".
pub(super) fn invalid(param: &str, expected: &str) -> RequestError {
    RequestError {
        code: ErrorCode::InvalidField,
        param: Some(param.to_owned()),
        message: format!("`{param}` must be {expected}"),
    }
}

/// A string.
pub(super) fn text(raw: &RawValue, param: &str) -> Result<String, RequestError> {
    serde_json::from_str(raw.get()).map_err(|_| invalid(param, "a string"))
}

/// `true` or `false`.
pub(super) fn flag(raw: Option<&RawValue>, param: &str) -> Result<bool, RequestError> {
    match raw.map(RawValue::get) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid(param, "true or false")),
    }
}

/// A count of tokens. Some engines use -1 for "no limit", so it counts as absent.
pub(super) fn count(raw: &RawValue, param: &str) -> Result<Option<u64>, RequestError> {
    let text = raw.get();
    if text == "-1" {
        return Ok(None);
    }
    // 64.0 and 1e3 are whole numbers too. A string is never a number.
    let whole = |number: &f64| *number >= 0.0 && number.fract() == 0.0;
    let fraction = || serde_json::from_str::<f64>(text).ok().filter(whole);
    let count = text
        .parse::<u64>()
        .ok()
        .or_else(|| Some(fraction()? as u64));
    count.and_then(reported_tokens).map(Some).ok_or_else(|| {
        let expected = format!("a whole number from 0 to {TOKENS_MAX}; leave it out for no limit");
        invalid(param, &expected)
    })
}

/// An id: a string, or a number taken as its own text. An empty string counts as absent.
pub(super) fn id(raw: &RawValue, param: &str) -> Result<Option<ClientName>, RequestError> {
    let id = match raw.get().as_bytes().first() {
        Some(b'"') => text(raw, param)?,
        Some(b'-' | b'0'..=b'9') => raw.get().to_owned(),
        _ => return Err(invalid(param, "a string or a number")),
    };
    if id.is_empty() {
        return Ok(None);
    }
    Ok(Some(ClientName::parse(param, id)?))
}

/// The named fields of an object; `null` counts as absent.
pub(super) fn pick<'a, const N: usize>(
    raw: &'a RawValue,
    names: [&'static str; N],
    param: &str,
) -> Result<[Option<&'a RawValue>; N], RequestError> {
    serde_json::Deserializer::from_str(raw.get())
        .deserialize_map(Pick { names })
        .map_err(|_| invalid(param, "an object"))
}

struct Pick<const N: usize> {
    names: [&'static str; N],
}

impl<'de, const N: usize> Visitor<'de> for Pick<N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut picked = [None; N];
        while let Some(index) = map.next_key_seed(IndexOf(&self.names))? {
            match index {
                Some(index) => picked[index] = map.next_value()?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(picked)
    }
}

/// The position of a key among the names.
struct IndexOf<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for IndexOf<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IndexOf<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_model::NAME_BYTES_MAX;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn counts_are_whole_and_not_negative() {
        for (json, expected) in [
            ("0", Some(0)),
            ("64", Some(64)),
            ("64.0", Some(64)),
            ("-1", None),
        ] {
            assert_eq!(count(&raw(json), "n").unwrap(), expected, "{json}");
        }
        assert_eq!(count(&raw("1e3"), "n").unwrap(), Some(1000));
        let most = TOKENS_MAX.to_string();
        assert_eq!(count(&raw(&most), "n").unwrap(), Some(TOKENS_MAX));
        for json in [
            "-2",
            "1.5",
            "\"64\"",
            "[]",
            "{}",
            "true",
            "1e999",
            "1e300",
            "1099511627777",
            "18446744073709551615",
        ] {
            let error = count(&raw(json), "n").expect_err(json);
            assert_eq!(error.param.as_deref(), Some("n"));
        }
    }

    #[test]
    fn ids_are_texts_or_numbers() {
        let read = |json: &str| id(&raw(json), "p").unwrap();
        assert_eq!(read(r#""a\u0062""#).as_deref(), Some("ab"));
        assert_eq!(
            read("123456789012345678901234567890").as_deref(),
            Some("123456789012345678901234567890")
        );
        assert_eq!(read("-7").as_deref(), Some("-7"));
        assert_eq!(read("\"\""), None);
        let longest = format!("\"{}\"", "x".repeat(NAME_BYTES_MAX));
        assert_eq!(read(&longest).map(|id| id.len()), Some(NAME_BYTES_MAX));
        let longer = format!("\"{}\"", "x".repeat(NAME_BYTES_MAX + 1));
        let forged = r#""\u001facme\u001fp""#;
        for json in [longer.as_str(), forged, "true", "[]", "{}"] {
            let error = id(&raw(json), "p").unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidField);
            assert_eq!(error.param.as_deref(), Some("p"));
        }
    }

    #[test]
    fn named_fields_are_picked() {
        let object = raw(r#"{"x":1,"b":[{"a":2}],"\u0061":3,"c":null}"#);
        let [a, b, c, d] = pick(&object, ["a", "b", "c", "d"], "o").unwrap();
        assert_eq!(a.map(RawValue::get), Some("3"));
        assert_eq!(b.map(RawValue::get), Some(r#"[{"a":2}]"#));
        assert!(c.is_none() && d.is_none());
        assert!(pick(&raw("[]"), ["a"], "o").is_err());
    }
}
