//! The tools of a request as the functions of a chat.

use crate::chat::{Function, read_list, refused};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use treadle_wire::error::RequestError;

/// The model's choice of tools.
pub(super) struct Choice {
    /// In the form of a chat.
    pub(super) tool: Value,
    /// Whether it may call only one at a time.
    pub(super) is_sequential: bool,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
    strict: Option<bool>,
}

/// The functions for `tools`, each as JSON.
pub(super) fn functions(tools: &RawValue) -> Result<Vec<String>, RequestError> {
    let tools = read_list(tools)?.into_iter().enumerate();
    let functions = tools.map(|(at, tool)| function(tool, &format!("tools[{at}]")));
    functions.collect()
}

fn function(tool: &RawValue, param: &str) -> Result<String, RequestError> {
    let tool: Tool<'_> = serde_json::from_str(tool.get()).map_err(|error| {
        let message = format!("`{param}` has the wrong shape: {error}");
        refused(param, &message)
    })?;
    let name = tool.name.filter(|name| !name.is_empty());
    if let Some(kind) = tool.kind.filter(|kind| kind != "custom") {
        let name = name.unwrap_or_default();
        let message = format!(
            "`{param}`, `{name}`, is a tool of type `{kind}`, which only its provider defines; \
             leave it out, or offer one with an `input_schema`"
        );
        return Err(refused(param, &message));
    }
    let name = name.ok_or_else(|| refused(param, &format!("`{param}` must have a name")))?;
    let function = Function {
        name: &name,
        description: tool.description,
        parameters: tool.input_schema,
        strict: tool.strict,
    };
    function.json()
}

/// Reads `tool_choice`.
pub(super) fn choice(choice: &RawValue) -> Result<Choice, RequestError> {
    #[derive(Deserialize)]
    struct ToolChoice {
        #[serde(rename = "type")]
        kind: String,
        name: Option<String>,
        disable_parallel_tool_use: Option<bool>,
    }
    const PARAM: &str = "tool_choice";
    let parsed: ToolChoice = serde_json::from_str(choice.get()).map_err(|error| {
        let message = format!("`tool_choice` must be an object with a type: {error}");
        refused(PARAM, &message)
    })?;
    let tool = match (parsed.kind.as_str(), parsed.name) {
        ("auto" | "none", _) => json!(parsed.kind),
        ("any", _) => json!("required"),
        ("tool", Some(name)) => json!({"type": "function", "function": {"name": name}}),
        ("tool", None) => {
            return Err(refused("tool_choice.name", "`tool_choice.name` is missing"));
        }
        (kind, _) => {
            let message = format!(
                "`tool_choice.type` is `{kind}`, but must be `auto`, `any`, `tool` or `none`"
            );
            return Err(refused("tool_choice.type", &message));
        }
    };
    Ok(Choice {
        tool,
        is_sequential: parsed.disable_parallel_tool_use == Some(true),
    })
}
