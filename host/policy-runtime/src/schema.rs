//! Checks configurations against the JSON Schema of a policy: the part of draft 2020-12 that the
//! SDKs generate. Other parts of a schema are for display and forms; the policy's own `configure`
//! has the last word.

use serde_json::{Map, Value};

/// Checks a configuration, a JSON object; an empty schema allows everything.
///
/// # Errors
/// The fault, with its key and the remedy.
pub(crate) fn check(schema: &str, config: &str) -> Result<(), String> {
    if schema.is_empty() {
        return Ok(());
    }
    let schema = parse(schema)?;
    let config: Value = serde_json::from_str(config)
        .map_err(|error| format!("{error}; write a JSON object, such as {{}}"))?;
    fits(&Value::Object(schema), &config, "the configuration")
}

/// Checks a schema itself: an object whose defaults fit it.
///
/// # Errors
/// The fault.
pub(crate) fn check_schema(schema: &str) -> Result<(), String> {
    if schema.is_empty() {
        return Ok(());
    }
    let schema = parse(schema)?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its `type` is not \"object\"".to_owned());
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        let default = property.get("default");
        let default = default.ok_or_else(|| format!("{key} has no `default`"))?;
        fits(property, default, key).map_err(|wrong| format!("a default does not fit: {wrong}"))?;
    }
    Ok(())
}

fn parse(schema: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(schema).map_err(|error| format!("the schema is no JSON object: {error}"))
}

fn fits(schema: &Value, value: &Value, key: &str) -> Result<(), String> {
    if let Some(kinds) = schema.get("type") {
        let kinds: Vec<&str> = match kinds {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        if !kinds.iter().any(|kind| is_a(kind, value)) {
            return Err(format!("{key} is {value}; give {}", kinds.join(" or ")));
        }
    }
    let choices = schema.get("enum").and_then(Value::as_array);
    if let Some(choices) = choices.filter(|choices| !choices.contains(value)) {
        let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
        return Err(format!("{key} is {value}; give {}", choices.join(" or ")));
    }
    match value {
        Value::Number(number) => within(schema, number.as_f64(), ["minimum", "maximum"], key),
        Value::Array(entries) => {
            within(
                schema,
                Some(entries.len() as f64),
                ["minItems", "maxItems"],
                key,
            )?;
            let items = schema.get("items").into_iter();
            let mut each = items.flat_map(|items| entries.iter().map(move |entry| (items, entry)));
            each.try_for_each(|(items, entry)| fits(items, entry, key))
        }
        Value::Object(fields) => object_fits(schema, fields, key),
        _ => Ok(()),
    }
}

fn object_fits(schema: &Value, fields: &Map<String, Value>, key: &str) -> Result<(), String> {
    let required = schema.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = required.find(|name| !fields.contains_key(*name)) {
        return Err(format!("{key} lacks {missing}; give it"));
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    fields
        .iter()
        .try_for_each(|(name, field)| match properties.get(name) {
            Some(property) => fits(property, field, name),
            None if is_closed => {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                let known = match known.as_slice() {
                    [] => "there are no keys".to_owned(),
                    known => format!("the keys are {}", known.join(", ")),
                };
                Err(format!("{name} is not known; {known}"))
            }
            None => Ok(()),
        })
}

fn within(
    schema: &Value,
    measure: Option<f64>,
    [least, most]: [&str; 2],
    key: &str,
) -> Result<(), String> {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let Some(measure) = measure else {
        return Ok(());
    };
    let (min, max) = (bound(least), bound(most));
    if min.is_some_and(|min| measure < min) || max.is_some_and(|max| measure > max) {
        let bounds = match (min, max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (_, max) => format!("at most {}", max.unwrap_or_default()),
        };
        return Err(format!("{key} is {measure}; give {bounds}"));
    }
    Ok(())
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false, "properties": {
        "share": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "order": {"type": "string", "enum": ["long", "short"], "default": "long"},
        "late_s": {"type": ["number", "null"], "minimum": 0, "default": null},
        "counts": {"type": "array", "maxItems": 2, "items": {"type": "integer"}, "default": []},
        "at": {"type": "object", "required": ["x"], "properties": {"x": {}}, "default": {"x": 1}}
    }}"#;

    #[test]
    fn what_fits_is_accepted() {
        assert_eq!(check_schema(SCHEMA), Ok(()));
        for config in [
            "{}",
            r#"{"share": 1, "order": "short", "late_s": null, "counts": [1, 2]}"#,
            r#"{"at": {"x": "y", "z": 1}}"#,
        ] {
            assert_eq!(check(SCHEMA, config), Ok(()), "{config}");
        }
        assert_eq!(check("", r#"{"any": 1}"#), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_named_with_the_remedy() {
        for (config, told) in [
            ("[]", "give object"),
            (
                r#"{"shre": 1}"#,
                "shre is not known; the keys are at, counts, late_s",
            ),
            (r#"{"share": 2}"#, "share is 2; give 0 to 1"),
            (r#"{"share": null}"#, "share is null; give number"),
            (
                r#"{"order": "any"}"#,
                r#"order is "any"; give "long" or "short""#,
            ),
            (r#"{"late_s": -1}"#, "late_s is -1; give at least 0"),
            (r#"{"counts": [1.5]}"#, "counts is 1.5; give integer"),
            (r#"{"counts": [1, 2, 3]}"#, "counts is 3; give at most 2"),
            (r#"{"at": {}}"#, "at lacks x"),
        ] {
            let error = check(SCHEMA, config).unwrap_err();
            assert!(error.contains(told), "{config}: {error}");
        }
    }

    #[test]
    fn a_schema_describes_an_object_and_its_defaults_fit() {
        for (schema, told) in [
            ("7", "no JSON object"),
            (r#"{"type": "array"}"#, "not \"object\""),
            (
                r#"{"type": "object", "properties": {"a": {}}}"#,
                "a has no `default`",
            ),
            (
                r#"{"type": "object", "properties": {"a": {"type": "string", "default": 1}}}"#,
                "a is 1; give string",
            ),
        ] {
            let error = check_schema(schema).unwrap_err();
            assert!(error.contains(told), "{schema}: {error}");
        }
    }
}
