//! Typed configurations: their keys, defaults and bounds are written once, and parsing, error
//! messages and the policy's JSON Schema follow from them.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::PolicyError;

/// The configuration of a policy. Made by [`config!`](crate::config!).
pub trait Config: Default {
    /// The defaults, overridden by the keys of a JSON object.
    ///
    /// # Errors
    /// The problem, naming the key: it is unknown, or its value has the wrong type or is out of
    /// bounds.
    fn read(given: &Map<String, Value>) -> Result<Self, String>;

    /// The JSON Schema of the configuration.
    fn schema() -> Value;

    /// The defaults, overridden by the keys of a JSON object.
    ///
    /// # Errors
    /// [`PolicyError::invalid_config`], naming the key.
    fn parse(json: &str) -> Result<Self, PolicyError> {
        let given: Map<String, Value> = serde_json::from_str(json).map_err(|error| {
            PolicyError::invalid_config(format!("{error}; write a JSON object, such as {{}}"))
        })?;
        Self::read(&given).map_err(PolicyError::invalid_config)
    }
}

/// A type of values in configurations.
pub trait ConfigValue: Sized {
    /// The type of its bounds.
    type Bound: PartialOrd + Display + Into<Value> + Clone;

    /// Converts the value, if it has this type.
    ///
    /// # Errors
    /// What is expected instead, such as `a number`.
    fn of(value: &Value) -> Result<Self, String>;

    /// The value as JSON, for the schema's default.
    fn json(&self) -> Value;

    /// The number that bounds apply to: a number itself, or the length of a list; `None` for
    /// other values.
    fn measure(&self) -> Option<Self::Bound> {
        None
    }

    /// The JSON Schema of the type, with these bounds.
    fn schema(bounds: Option<&RangeInclusive<Self::Bound>>) -> Value;
}

macro_rules! numbers {
    ($($number:ty: $kind:literal, $said:literal, $of:expr;)*) => {$(
        impl ConfigValue for $number {
            type Bound = Self;

            fn of(value: &Value) -> Result<Self, String> {
                let of: fn(&Value) -> Option<Self> = $of;
                of(value).ok_or_else(|| $said.to_owned())
            }

            fn json(&self) -> Value {
                json!(self)
            }

            fn measure(&self) -> Option<Self> {
                Some(*self)
            }

            fn schema(bounds: Option<&RangeInclusive<Self>>) -> Value {
                let mut schema = json!({"type": $kind});
                if let Some(bounds) = bounds {
                    schema["minimum"] = json!(bounds.start());
                    schema["maximum"] = json!(bounds.end());
                }
                schema
            }
        }
    )*};
}

numbers! {
    f64: "number", "a number", Value::as_f64;
    u64: "integer", "a whole number from 0", Value::as_u64;
    u32: "integer", "a whole number from 0", |value| value.as_u64()?.try_into().ok();
}

impl ConfigValue for bool {
    type Bound = u32;

    fn of(value: &Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| "true or false".to_owned())
    }

    fn json(&self) -> Value {
        json!(self)
    }

    fn schema(_bounds: Option<&RangeInclusive<u32>>) -> Value {
        json!({"type": "boolean"})
    }
}

impl<T: ConfigValue> ConfigValue for Option<T> {
    type Bound = T::Bound;

    fn of(value: &Value) -> Result<Self, String> {
        if value.is_null() {
            return Ok(None);
        }
        T::of(value)
            .map(Some)
            .map_err(|said| format!("{said}, or null"))
    }

    fn json(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::json)
    }

    fn measure(&self) -> Option<T::Bound> {
        self.as_ref().and_then(T::measure)
    }

    fn schema(bounds: Option<&RangeInclusive<T::Bound>>) -> Value {
        let mut schema = T::schema(bounds);
        if let Some(kind) = schema.get_mut("type") {
            *kind = json!([kind.take(), "null"]);
        }
        if let Some(Value::Array(choices)) = schema.get_mut("enum") {
            choices.push(Value::Null);
        }
        schema
    }
}

impl<T: ConfigValue> ConfigValue for Vec<T> {
    type Bound = u64;

    fn of(value: &Value) -> Result<Self, String> {
        let entries = value.as_array().ok_or("a list")?;
        entries
            .iter()
            .map(|entry| T::of(entry).map_err(|said| format!("a list; an entry must be {said}")))
            .collect()
    }

    fn json(&self) -> Value {
        self.iter().map(T::json).collect()
    }

    fn measure(&self) -> Option<u64> {
        Some(self.len() as u64)
    }

    fn schema(bounds: Option<&RangeInclusive<u64>>) -> Value {
        let mut schema = json!({"type": "array", "items": T::schema(None)});
        if let Some(bounds) = bounds {
            schema["minItems"] = json!(bounds.start());
            schema["maxItems"] = json!(bounds.end());
        }
        schema
    }
}

/// Parses the value of a key, and checks its bounds.
#[doc(hidden)]
pub fn value<T: ConfigValue>(
    key: &str,
    given: &Value,
    bounds: Option<&RangeInclusive<T::Bound>>,
) -> Result<T, String> {
    let value = T::of(given).map_err(|said| format!("{key} is {given}; give {said}"))?;
    match (value.measure(), bounds) {
        (Some(measure), Some(bounds)) if !bounds.contains(&measure) => Err(format!(
            "{key} is {measure}; give {} to {}",
            bounds.start(),
            bounds.end()
        )),
        _ => Ok(value),
    }
}

/// The JSON Schema of a key.
#[doc(hidden)]
pub fn property<T: ConfigValue>(
    description: &str,
    default: &T,
    bounds: Option<&RangeInclusive<T::Bound>>,
) -> Value {
    let mut schema = T::schema(bounds);
    schema["description"] = json!(description.trim());
    schema["default"] = default.json();
    schema
}

/// The JSON Schema of a configuration with these keys.
#[doc(hidden)]
pub fn object(properties: Map<String, Value>) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "properties": Value::Object(properties),
    })
}

/// The error for an unknown key.
#[doc(hidden)]
pub fn unknown(key: &str, known: &[&str]) -> String {
    match known {
        [] => format!("{key} is not known; there are no keys: give {{}}"),
        _ => format!("{key} is not known; the keys are {}", known.join(", ")),
    }
}

/// Declares a [`Config`]: for each key its description, type and default, and its bounds if it has
/// some.
///
/// ```
/// treadle_plugin::config! {
///     /// Configuration of the policy.
///     pub struct Config {
///         /// Tokens that a second in the queue makes up for.
///         age_weight: f64 = 1_000.0, 0.0..=1e9;
///         /// Whether a running step may be preempted.
///         preempts: bool = false;
///     }
/// }
/// use treadle_plugin::Config as _;
///
/// let config = Config::parse(r#"{"age_weight": 5}"#).unwrap();
/// assert_eq!((config.age_weight, config.preempts), (5.0, false));
/// let error = Config::parse(r#"{"age_weight": -1}"#).unwrap_err();
/// assert!(error.message.contains("age_weight is -1; give 0 to"));
/// assert_eq!(Config::schema()["properties"]["age_weight"]["default"], 1_000.0);
/// ```
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[doc = $doc:literal])+ $key:ident: $kind:ty = $default:expr $(, $bounds:expr)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $visibility struct $name {
            $($(#[doc = $doc])+ pub $key: $kind,)*
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::Config for $name {
            #[allow(unused_mut)]
            fn read(
                given: &$crate::serde_json::Map<String, $crate::serde_json::Value>,
            ) -> Result<Self, String> {
                let mut config = Self::default();
                #[allow(clippy::never_loop)]
                for (key, value) in given {
                    match key.as_str() {
                        $(stringify!($key) => {
                            let bounds = None $(.or(Some($bounds)))?;
                            config.$key =
                                $crate::configuration::value::<$kind>(key, value, bounds.as_ref())?;
                        })*
                        _ => {
                            let _ = value;
                            return Err($crate::configuration::unknown(
                                key,
                                &[$(stringify!($key)),*],
                            ));
                        }
                    }
                }
                Ok(config)
            }

            #[allow(unused_mut)]
            fn schema() -> $crate::serde_json::Value {
                let mut properties = $crate::serde_json::Map::new();
                $({
                    let bounds = None $(.or(Some($bounds)))?;
                    let default: $kind = $default;
                    properties.insert(
                        stringify!($key).to_owned(),
                        $crate::configuration::property(
                            concat!($($doc),+),
                            &default,
                            bounds.as_ref(),
                        ),
                    );
                })*
                $crate::configuration::object(properties)
            }
        }
    };
}

/// Declares an enum as the type of a [`config!`](crate::config!) key, with the names of its choices
/// in JSON.
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$case_meta:meta])* $case:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$case_meta])* $case,)+
        }

        impl $crate::ConfigValue for $name {
            type Bound = u32;

            fn of(value: &$crate::serde_json::Value) -> Result<Self, String> {
                match value.as_str() {
                    $(Some($text) => Ok(Self::$case),)+
                    _ => Err(concat!("one of" $(, " \"", $text, "\"")+).to_owned()),
                }
            }

            fn json(&self) -> $crate::serde_json::Value {
                match self {
                    $(Self::$case => $text.into(),)+
                }
            }

            fn schema(
                _bounds: Option<&::core::ops::RangeInclusive<u32>>,
            ) -> $crate::serde_json::Value {
                $crate::serde_json::json!({"type": "string", "enum": [$($text),+]})
            }
        }
    };
}

config! {
    /// The configuration of a policy without keys.
    pub struct NoConfig {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoConfig;

    choice! {
        /// What comes first.
        enum Order {
            Shortest = "shortest",
            Longest = "longest",
        }
    }

    config! {
        /// One key of each kind.
        struct Every {
            /// A share.
            share: f64 = 0.5, 0.0..=1.0;
            /// A count
            /// on two lines.
            count: u32 = 3, 1..=9;
            /// A choice.
            order: Order = Order::Shortest;
            /// A time, or null for never.
            late_s: Option<f64> = None, 0.0..=60.0;
            /// Some numbers.
            numbers: Vec<u64> = vec![1], 0..=2;
            /// A flag.
            on: bool = true;
        }
    }

    #[test]
    fn what_is_given_replaces_the_defaults() {
        let json = r#"{"share": 1, "order": "longest", "late_s": 2, "numbers": [], "on": false}"#;
        let config = Every::parse(json).unwrap();
        assert_eq!((config.share, config.count), (1.0, 3));
        assert_eq!((config.order, config.late_s), (Order::Longest, Some(2.0)));
        assert!(config.numbers.is_empty() && !config.on);
        assert_eq!(Every::parse("{}"), Ok(Every::default()));
        assert!(Every::parse(r#"{"late_s": null}"#).is_ok());
        assert_eq!(NoConfig::parse("{}"), Ok(NoConfig {}));
    }

    #[test]
    fn refusals_name_the_key_and_the_remedy() {
        for (json, told) in [
            (
                r#"{"colour": 1}"#,
                "colour is not known; the keys are share, count",
            ),
            (r#"{"share": 2}"#, "share is 2; give 0 to 1"),
            (r#"{"count": 1.5}"#, "count is 1.5; give a whole number"),
            (
                r#"{"order": "any"}"#,
                r#"order is "any"; give one of "shortest" "longest""#,
            ),
            (r#"{"late_s": "x"}"#, "give a number, or null"),
            (r#"{"numbers": [1, 2, 3]}"#, "numbers is 3; give 0 to 2"),
            ("[]", "write a JSON object"),
        ] {
            let error = Every::parse(json).unwrap_err();
            assert_eq!(error.code, "invalid-config");
            assert!(error.message.contains(told), "{json}: {error}");
        }
        let error = NoConfig::parse(r#"{"colour": 1}"#).unwrap_err();
        assert!(error.message.contains("colour is not known"), "{error}");
    }

    #[test]
    fn the_schema_has_meaning_default_and_bounds_of_each_key() {
        let schema = Every::schema();
        assert_eq!(schema["additionalProperties"], false);
        let properties = &schema["properties"];
        let share = json!({
            "type": "number", "minimum": 0.0, "maximum": 1.0, "default": 0.5,
            "description": "A share.",
        });
        assert_eq!(properties["share"], share);
        assert_eq!(properties["count"]["description"], "A count on two lines.");
        assert_eq!(properties["order"]["enum"], json!(["shortest", "longest"]));
        assert_eq!(properties["late_s"]["type"], json!(["number", "null"]));
        assert_eq!(properties["numbers"]["maxItems"], 2);
    }
}
