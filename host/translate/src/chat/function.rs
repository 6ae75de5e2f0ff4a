//! Functions, the tools of a chat.

use super::fields::refused;
use serde::Serialize;
use serde_json::value::RawValue;
use treadle_wire::error::RequestError;

/// Parameters of a function that has none.
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

/// A function that the model can call.
#[derive(Serialize)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// `None` for a function without parameters.
    pub(crate) parameters: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strict: Option<bool>,
}

impl Function<'_> {
    /// The tool in the chat's `tools`.
    pub(crate) fn json(mut self) -> Result<String, RequestError> {
        let unwritten = |error: serde_json::Error| {
            refused("tools", &format!("`tools` can't be written: {error}"))
        };
        if self.parameters.is_none() {
            self.parameters = Some(serde_json::from_str(NO_PARAMETERS).map_err(unwritten)?);
        }
        let (kind, function) = ("function", self);
        serde_json::to_string(&Tool { kind, function }).map_err(unwritten)
    }
}

/// The elements of `tools`.
pub(crate) fn read_list(tools: &RawValue) -> Result<Vec<&RawValue>, RequestError> {
    serde_json::from_str(tools.get()).map_err(|_| refused("tools", "`tools` must be a list"))
}
