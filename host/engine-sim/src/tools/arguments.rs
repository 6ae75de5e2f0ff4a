//! Finds a minimal value that fits a JSON schema: only what is required.

use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Maximum nesting of values, as schemas may be recursive.
const DEPTH_MAX: usize = 16;
/// Maximum number of a list's elements.
const ELEMENTS_MAX: usize = 64;

/// A fitting object for a function's parameters, in ASCII.
pub(super) fn fitting(parameters: &Value, number: u64) -> Option<String> {
    filled(parameters, number, None)
}

/// A fitting object with this command; `None` if the parameters require no command.
pub(super) fn running(parameters: &Value, number: u64, command: &str) -> Option<String> {
    let written = ascii(&Value::from(command).to_string());
    filled(parameters, number, Some(command)).filter(|object| object.contains(&written))
}

fn filled(parameters: &Value, number: u64, command: Option<&str>) -> Option<String> {
    let root = parameters;
    let of = Fitting {
        root,
        number,
        command,
    };
    let value = match parameters {
        Value::Null => json!({}),
        _ => of.value(parameters, "", 0)?,
    };
    value.is_object().then(|| ascii(&value.to_string()))
}

struct Fitting<'a> {
    root: &'a Value,
    number: u64,
    /// Values of commands; `None`: any harmless one.
    command: Option<&'a str>,
}

impl Fitting<'_> {
    fn value(&self, schema: &Value, name: &str, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX || *schema == Value::Bool(false) {
            return None;
        }
        // Constraints that can't simply be filled in.
        if [
            "pattern",
            "not",
            "if",
            "contains",
            "dependentRequired",
            "propertyNames",
        ]
        .iter()
        .any(|name| schema.get(name).is_some())
        {
            return None;
        }
        if let Some(target) = schema["$ref"].as_str() {
            let target = self.root.pointer(target.strip_prefix('#')?)?;
            return self.value(target, name, depth + 1);
        }
        if let Some(value) = schema.get("const") {
            return Some(value.clone());
        }
        if let Some(values) = schema["enum"].as_array() {
            let at = self.number as usize % values.len().max(1);
            return values.get(at).cloned();
        }
        if let Some(parts) = schema["allOf"].as_array() {
            return self.value(&together(schema, parts), name, depth + 1);
        }
        for choices in ["anyOf", "oneOf"] {
            if let Some(parts) = schema[choices].as_array() {
                let of_part = |part| {
                    let whole = together(schema, std::slice::from_ref(part));
                    self.value(&whole, name, depth + 1)
                };
                let is_null = |part: &&Value| part["type"] == "null";
                let first = parts.iter().filter(|part| !is_null(part));
                return first.chain(parts.iter().filter(is_null)).find_map(of_part);
            }
        }
        self.of_type(kind_of(schema)?, schema, name, depth)
    }

    fn of_type(&self, kind: &str, schema: &Value, name: &str, depth: usize) -> Option<Value> {
        match kind {
            "object" => self.object(schema, depth),
            "array" => self.list(schema, name, depth),
            "string" => self.text(schema, name).map(Value::from),
            "integer" | "number" => numeral(schema, kind == "integer"),
            "boolean" => Some(Value::Bool(self.number & 1 == 1)),
            "null" => Some(Value::Null),
            _ => None,
        }
    }

    fn object(&self, schema: &Value, depth: usize) -> Option<Value> {
        let required = schema["required"].as_array();
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let mut fields = Map::new();
        for name in required {
            let any = json!({"type": "string"});
            let of_others = schema.get("additionalProperties");
            let of_others = of_others
                .filter(|schema| schema.is_object())
                .unwrap_or(&any);
            let own = schema["properties"].get(name).unwrap_or(of_others);
            fields.insert(name.to_owned(), self.value(own, name, depth + 1)?);
        }
        let fields_min = schema["minProperties"].as_u64().unwrap_or(0);
        for (name, own) in schema["properties"].as_object().into_iter().flatten() {
            if (fields.len() as u64) < fields_min && !fields.contains_key(name) {
                fields.insert(name.clone(), self.value(own, name, depth + 1)?);
            }
        }
        (fields.len() as u64 >= fields_min).then_some(Value::Object(fields))
    }

    fn list(&self, schema: &Value, name: &str, depth: usize) -> Option<Value> {
        let min = schema["minItems"].as_u64().unwrap_or(0) as usize;
        let any = json!({"type": "string"});
        let prefix = schema["prefixItems"].as_array();
        let prefix: &[Value] = prefix.map_or(&[], Vec::as_slice);
        let of_rest = schema.get("items").unwrap_or(&any);
        if min > ELEMENTS_MAX || (schema["uniqueItems"] == true && min > 1) {
            return None;
        }
        let schemas = (0..min).map(|at| prefix.get(at).unwrap_or(of_rest));
        let values = schemas.map(|schema| self.value(schema, name, depth + 1));
        values.collect::<Option<Vec<Value>>>().map(Value::from)
    }

    fn text(&self, schema: &Value, name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        let is = |part: &str| name.contains(part);
        let text = match schema["format"].as_str() {
            Some("date-time") => "2026-01-01T00:00:00Z".to_owned(),
            Some("date") => "2026-01-01".to_owned(),
            Some("time") => "00:00:00Z".to_owned(),
            Some("email") => "sim@example.com".to_owned(),
            Some("uri" | "url") => "http://127.0.0.1/".to_owned(),
            Some("uuid") => format!("00000000-0000-4000-8000-{:012x}", self.number >> 16),
            Some("ipv4") => "127.0.0.1".to_owned(),
            Some("ipv6") => "::1".to_owned(),
            Some("hostname") => "localhost".to_owned(),
            Some(_) => return None,
            None if is("command") || is("cmd") => self.command.map_or_else(
                || format!("echo rehearsal {}", self.number % 100),
                str::to_owned,
            ),
            None if is("path") || is("file") => "rehearsal.txt".to_owned(),
            None if is("url") => "http://127.0.0.1/".to_owned(),
            None => format!("rehearsal {}", self.number % 100),
        };
        let (min, max) = (schema["minLength"].as_u64(), schema["maxLength"].as_u64());
        let min = min.unwrap_or(0) as usize;
        let max = max.map_or(usize::MAX, |max| max as usize);
        if min > max || min > 1 << 16 {
            return None;
        }
        let padded = text.chars().chain(std::iter::repeat('x'));
        let length = text.len().clamp(min, max);
        Some(padded.take(length).collect())
    }
}

/// The type of a value: one other than null, if there are several.
fn kind_of(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.max_by_key(|kind| *kind != "null")
        }
        _ if schema.get("properties").is_some() || schema.get("required").is_some() => {
            Some("object")
        }
        _ if schema.get("items").is_some() => Some("array"),
        _ => Some("string"),
    }
}

/// Merges a schema with its parts.
fn together(schema: &Value, parts: &[Value]) -> Value {
    let mut whole = schema.as_object().cloned().unwrap_or_default();
    for name in ["allOf", "anyOf", "oneOf"] {
        whole.remove(name);
    }
    for (name, value) in parts.iter().filter_map(Value::as_object).flatten() {
        match (whole.get_mut(name), value) {
            (Some(Value::Object(all)), Value::Object(more)) => all.extend(more.clone()),
            (Some(Value::Array(all)), Value::Array(more)) if name == "required" => {
                all.extend(more.iter().cloned());
            }
            _ => {
                whole.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(whole)
}

fn numeral(schema: &Value, is_whole: bool) -> Option<Value> {
    let bound = |name: &str| schema[name].as_f64();
    let step = bound("multipleOf").unwrap_or(1.0);
    let above = bound("exclusiveMinimum").map(|min| (min / step).floor().mul_add(step, step));
    let least = bound("minimum").map(|min| (min / step).ceil() * step);
    let least = least
        .into_iter()
        .chain(above)
        .fold(f64::NEG_INFINITY, f64::max);
    let most = bound("maximum").unwrap_or(f64::INFINITY);
    let below = bound("exclusiveMaximum").unwrap_or(f64::INFINITY);
    let mut value = step.max(least);
    if value > most || value >= below {
        // The greatest allowed multiple.
        value = (most.min(below) / step).floor() * step;
        if value >= below {
            value -= step;
        }
    }
    let fits = value >= least && value <= most && value < below && value.is_finite();
    let is_integer = value.fract() == 0.0 && value.abs() < 9e15;
    match (fits, is_integer) {
        (true, true) => Some(json!(value as i64)),
        (true, false) if !is_whole => Some(json!(value)),
        _ => None,
    }
}

/// Converts JSON to ASCII by escaping.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_their_schemas() {
        let all = json!({
            "type": "object",
            "properties": {
                "cmd": {"type": "string"},
                "kind": {"enum": ["a", "b", "ü"]},
                "count": {"type": "integer", "minimum": 3, "maximum": 5, "multipleOf": 5},
                "ratio": {"type": "number", "exclusiveMaximum": 0.5, "multipleOf": 0.25},
                "maybe": {"type": ["null", "boolean"]},
                "short": {"type": "string", "maxLength": 4, "minLength": 4},
                "list": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/point"}},
                "either": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "both": {"allOf": [{"properties": {"x": {"const": 7}}}, {"required": ["x"]}]},
                "day": {"type": "string", "format": "date"},
                "left_out": {"type": "string", "pattern": "^never$"}
            },
            "required": ["cmd", "kind", "count", "ratio", "maybe", "short", "list", "either",
                "both", "day"],
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}},
                "required": ["x"]}}
        });
        for number in 0..12 {
            let text = fitting(&all, number).expect("it can be filled in");
            assert!(text.is_ascii());
            let value: Value = serde_json::from_str(&text).expect("JSON");
            assert!(
                value["cmd"]
                    .as_str()
                    .is_some_and(|cmd| cmd.starts_with("echo "))
            );
            assert!(["a", "b", "ü"].contains(&value["kind"].as_str().expect("a kind")));
            assert_eq!(value["count"], 5);
            assert_eq!(value["ratio"], 0.25);
            assert!(value["maybe"].is_boolean());
            assert_eq!(value["short"].as_str().map(str::len), Some(4));
            assert_eq!(value["list"], json!([{"x": 1}, {"x": 1}]));
            assert_eq!(
                (&value["either"], &value["both"]["x"]),
                (&json!(1), &json!(7))
            );
            assert!(value.get("left_out").is_none());
        }
    }

    #[test]
    fn nothing_is_said_where_nothing_fits() {
        let required = |schema: Value| json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
        for schema in [
            json!({"type": "string", "pattern": "^a+$"}),
            json!({"type": "integer", "minimum": 2, "maximum": 1}),
            json!(false),
            json!({"$ref": "#/properties/x"}),
            json!({"$ref": "#/nowhere"}),
            json!({"type": "array", "minItems": 1_000_000}),
        ] {
            assert_eq!(fitting(&required(schema.clone()), 1), None, "{schema}");
        }
        assert_eq!(fitting(&Value::Null, 1).as_deref(), Some("{}"));
        assert_eq!(fitting(&json!({"type": "string"}), 1), None);
    }
}
