//! The requested form of an answer, and how much the model is to reason about it.

use super::fields::refused;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use treadle_wire::error::RequestError;

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    format: Option<Format<'a>>,
}

#[derive(Deserialize)]
struct Format<'a> {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    strict: Option<bool>,
}

#[derive(Serialize)]
pub(crate) struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<JsonSchema<'a>>,
}

/// Kept as raw text, because engines generate fields in the order of the schema.
#[derive(Serialize)]
struct JsonSchema<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// `format` of the field `param` in the form of a chat: `None` for plain text.
pub(crate) fn response_format<'a>(
    output: &'a RawValue,
    param: &str,
) -> Result<Option<ResponseFormat<'a>>, RequestError> {
    let wrong = |error: serde_json::Error| {
        let message = format!("`{param}` must be an object with a format: {error}");
        refused(param, &message)
    };
    let output: Output<'_> = serde_json::from_str(output.get()).map_err(wrong)?;
    let Some(format) = output.format else {
        return Ok(None);
    };
    match format.kind.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(ResponseFormat {
            kind: "json_object",
            json_schema: None,
        })),
        "json_schema" => {
            let path = format!("{param}.format.schema");
            let missing = || refused(&path, &format!("`{path}` is missing"));
            let schema = format.schema.ok_or_else(missing)?;
            Ok(Some(ResponseFormat {
                kind: "json_schema",
                json_schema: Some(JsonSchema {
                    name: format.name.unwrap_or_else(|| "answer".into()),
                    description: format.description,
                    schema,
                    strict: format.strict,
                }),
            }))
        }
        kind => {
            let path = format!("{param}.format.type");
            let message = format!("`{path}` is `{kind}`, which no engine knows");
            Err(refused(&path, &message))
        }
    }
}

/// `effort` of a field.
pub(crate) fn effort(within: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Reasoning {
        effort: Option<String>,
    }
    serde_json::from_str::<Reasoning>(within.get()).ok()?.effort
}
