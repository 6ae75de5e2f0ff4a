//! Adding and removing fields of a JSON object without parsing or rewriting the rest of it.

use memchr::memchr;
use std::ops::Range;

/// The body with `"name":value` for each of these inserted after the opening brace; `None` if the
/// body does not begin with a JSON object. Values are JSON.
///
/// Every other byte is unchanged. A later field of the same name is kept, and most parsers then use
/// the later one: remove it first if it must not win.
pub fn insert_fields(body: &[u8], fields: &[(&str, String)]) -> Option<Vec<u8>> {
    let brace = memchr(b'{', body)?;
    if !body[..brace].iter().all(|byte| is_space(*byte)) {
        return None;
    }
    let rest = &body[brace + 1..];
    let next = rest.iter().find(|byte| !is_space(**byte))?;
    let room: usize = fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 8)
        .sum();
    let mut spliced = Vec::with_capacity(body.len() + room);
    spliced.extend_from_slice(&body[..=brace]);
    for (at, (name, value)) in fields.iter().enumerate() {
        spliced.extend_from_slice(serde_json::to_string(name).ok()?.as_bytes());
        spliced.push(b':');
        spliced.extend_from_slice(value.as_bytes());
        if at + 1 < fields.len() || *next != b'}' {
            spliced.push(b',');
        }
    }
    spliced.extend_from_slice(rest);
    Some(spliced)
}

/// The body, a JSON object, without the fields at these places, which are in ascending order. A
/// place spans a name and its value, from the opening quote of the name to the value's end.
pub fn remove_fields(body: &[u8], places: impl IntoIterator<Item = Range<usize>>) -> Vec<u8> {
    let mut left = Vec::with_capacity(body.len());
    let mut from = 0;
    for place in places {
        left.extend_from_slice(&body[from..place.start]);
        from = place.end;
        let after = body[from..].iter().position(|byte| !is_space(*byte));
        match after.map(|at| from + at) {
            Some(comma) if body[comma] == b',' => from = comma + 1,
            // It was the last, so the comma before it goes.
            _ => {
                while left.last().is_some_and(|byte| is_space(*byte)) {
                    left.pop();
                }
                if left.last() == Some(&b',') {
                    left.pop();
                }
            }
        }
    }
    left.extend_from_slice(&body[from..]);
    left
}

/// JSON's white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spliced(body: &str) -> Option<String> {
        let fields = [("id_slot", "3".to_owned())];
        insert_fields(body.as_bytes(), &fields).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn removed_fields_leave_an_object() {
        for (body, expected) in [
            (r#"{"x":1}"#, "{}"),
            (r#"{"x":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":2 , "x":[1] }"#, r#"{"a":2  }"#),
            (r#"{"a":2,"x":{} , "b":3}"#, r#"{"a":2, "b":3}"#),
            (r#"{ "x":1, "x" : "," ,"x":2 }"#, "{ }"),
            (r#"{"a":2,"x":1,"x":null}"#, r#"{"a":2}"#),
        ] {
            let mut places = Vec::new();
            let mut from = 0;
            while let Some(at) = body[from..].find("\"x\"") {
                let begin = from + at;
                let colon = begin + body[begin..].find(':').unwrap() + 1;
                let mut values = serde_json::Deserializer::from_str(&body[colon..])
                    .into_iter::<serde_json::Value>();
                values.next().unwrap().unwrap();
                from = colon + values.byte_offset();
                places.push(begin..from);
            }
            let left = String::from_utf8(remove_fields(body.as_bytes(), places)).unwrap();
            assert_eq!(left, expected, "{body}");
            serde_json::from_str::<serde_json::Value>(&left).unwrap();
        }
    }

    #[test]
    fn several_fields_come_in_their_order() {
        let fields = [("a", "1".to_owned()), ("b", "\"x\"".to_owned())];
        let spliced = |body: &str| insert_fields(body.as_bytes(), &fields).unwrap();
        assert_eq!(spliced("{}"), br#"{"a":1,"b":"x"}"#);
        assert_eq!(spliced(r#"{"c":2}"#), br#"{"a":1,"b":"x","c":2}"#);
    }

    #[test]
    fn the_field_comes_first() {
        assert_eq!(spliced(r#"{"a":1}"#).unwrap(), r#"{"id_slot":3,"a":1}"#);
        assert_eq!(
            spliced(" \n{ \"a\" : {} }\n").unwrap(),
            " \n{\"id_slot\":3, \"a\" : {} }\n"
        );
        assert_eq!(spliced("{}").unwrap(), r#"{"id_slot":3}"#);
        assert_eq!(spliced("{ \t}").unwrap(), "{\"id_slot\":3 \t}");
    }

    #[test]
    fn what_is_no_object_stays_alone() {
        for body in ["", "[{}]", "  ", "1", "{", "{  ", "\"{}\""] {
            assert_eq!(spliced(body), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn the_object_gains_exactly_one_field(
            fields in proptest::collection::btree_map("[a-z\"\\\\]{0,6}", any::<i32>(), 0..6),
            name in "[A-Z\"\u{e9}]{1,5}",
            value: i64,
        ) {
            let body = serde_json::to_vec_pretty(&fields).unwrap();
            let spliced = insert_fields(&body, &[(&name, value.to_string())]).unwrap();
            let mut seen: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(&spliced).unwrap();
            // A quote is in both alphabets, so the names may meet; then the old value wins.
            if !fields.contains_key(&name) {
                prop_assert_eq!(seen.remove(&name), Some(value.into()));
            }
            prop_assert_eq!(serde_json::to_value(&fields).unwrap(), serde_json::Value::Object(seen));
        }
    }
}
