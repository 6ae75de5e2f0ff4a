//! Adding one field to a JSON object without parsing or rewriting the rest of it.

use memchr::memchr;

/// The body with `"name":value` put right behind the opening brace; `None` where the body
/// does not begin with a JSON object.
///
/// Every other byte stays as it was. A field of that name further on is left alone, and most
/// parsers then take the later one: the client's own choice wins.
pub fn insert_field(body: &[u8], name: &str, value: i64) -> Option<Vec<u8>> {
    let brace = memchr(b'{', body)?;
    if !body[..brace].iter().all(|byte| is_space(*byte)) {
        return None;
    }
    let rest = &body[brace + 1..];
    let next = rest.iter().find(|byte| !is_space(**byte))?;
    let field = serde_json::to_string(name).ok()?;
    let number = value.to_string();
    let mut spliced = Vec::with_capacity(body.len() + field.len() + number.len() + 2);
    spliced.extend_from_slice(&body[..=brace]);
    spliced.extend_from_slice(field.as_bytes());
    spliced.push(b':');
    spliced.extend_from_slice(number.as_bytes());
    if *next != b'}' {
        spliced.push(b',');
    }
    spliced.extend_from_slice(rest);
    Some(spliced)
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
        insert_field(body.as_bytes(), "id_slot", 3).map(|body| String::from_utf8(body).unwrap())
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
            let spliced = insert_field(&body, &name, value).unwrap();
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
