//! Tools of a request: those that the client runs become functions of a chat, under reversible
//! names; those that a provider would run are removed.

use crate::chat::{Function, read_list, refused};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use treadle_wire::error::RequestError;

/// Separates a namespace from the name of a tool within it.
const NAMESPACE_END: &str = "__";
/// Parameters of a function for a tool with free-text input.
const FREE_TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;

/// The tool of a function of a chat.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ToolName {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// Whether its input is free text instead of JSON.
    pub(super) is_custom: bool,
}

/// Names in the chat, and their tools.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolNames(BTreeMap<String, ToolName>);

impl ToolNames {
    /// The tool of a function that the model has called.
    pub(super) fn of(&self, chat_name: &str) -> ToolName {
        self.0.get(chat_name).cloned().unwrap_or_else(|| ToolName {
            name: chat_name.to_owned(),
            ..ToolName::default()
        })
    }
}

/// The name of a tool in the chat.
pub(super) fn chat_name<'a>(namespace: Option<&str>, name: &'a str) -> Cow<'a, str> {
    match namespace {
        Some(namespace) => [namespace, NAMESPACE_END, name].concat().into(),
        None => name.into(),
    }
}

/// The functions of a chat.
#[derive(Debug, Default)]
pub(super) struct ChatTools {
    /// Each as JSON, by its name.
    functions: Vec<(String, String)>,
    pub(super) names: ToolNames,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    strict: Option<bool>,
    #[serde(borrow)]
    format: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<Vec<&'a RawValue>>,
    /// The form of chat completions.
    #[serde(borrow)]
    function: Option<&'a RawValue>,
}

/// The list without the tools that a provider would run; `None` if there are none.
pub(super) fn without_hosted(tools: &RawValue) -> Result<Option<String>, RequestError> {
    let all = read_list(tools)?;
    let mut kept = Vec::with_capacity(all.len());
    for (at, tool) in all.iter().enumerate() {
        let param = format!("tools[{at}]");
        if is_own(&read(tool, &param)?.kind) {
            kept.push(tool.get());
        }
    }
    let is_whole = kept.len() == all.len();
    Ok((!is_whole).then(|| format!("[{}]", kept.join(","))))
}

/// Whether the client runs tools of this type.
fn is_own(kind: &str) -> bool {
    matches!(kind, "function" | "custom" | "namespace")
}

fn read<'a>(tool: &'a RawValue, param: &str) -> Result<Tool<'a>, RequestError> {
    serde_json::from_str(tool.get()).map_err(|error| {
        let message = format!("`{param}` is no tool, an object with a type: {error}");
        refused(param, &message)
    })
}

impl ChatTools {
    /// Reads `tools`.
    pub(super) fn of(tools: &RawValue) -> Result<Self, RequestError> {
        let mut chat = Self::default();
        for (at, tool) in read_list(tools)?.into_iter().enumerate() {
            chat.add(None, tool, &format!("tools[{at}]"))?;
        }
        Ok(chat)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The JSON list of functions.
    pub(super) fn json(&self) -> String {
        let all = self.functions.iter().map(|(_, function)| function.as_str());
        format!("[{}]", all.collect::<Vec<_>>().join(","))
    }

    fn add(
        &mut self,
        namespace: Option<&str>,
        tool: &RawValue,
        param: &str,
    ) -> Result<(), RequestError> {
        let read = read(tool, param)?;
        if let Some(function) = read.function {
            #[derive(Deserialize)]
            struct Named {
                name: String,
            }
            let named: Named = serde_json::from_str(function.get())
                .map_err(|_| refused(param, &format!("`{param}.function` must have a name")))?;
            self.functions.push((named.name, tool.get().to_owned()));
            return Ok(());
        }
        if !is_own(&read.kind) {
            return Ok(());
        }
        let name = read.name.as_deref().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| refused(param, &format!("`{param}` must have a name")))?;
        if read.kind != "namespace" {
            return self.add_function(namespace, name, &read);
        }
        if namespace.is_some() {
            let message = format!("`{param}` is a namespace within another, which has no meaning");
            return Err(refused(param, &message));
        }
        for (at, tool) in read.tools.into_iter().flatten().enumerate() {
            self.add(Some(name), tool, &format!("{param}.tools[{at}]"))?;
        }
        Ok(())
    }

    fn add_function(
        &mut self,
        namespace: Option<&str>,
        name: &str,
        tool: &Tool<'_>,
    ) -> Result<(), RequestError> {
        let is_custom = tool.kind == "custom";
        let free_text: &RawValue = constant(FREE_TEXT)?;
        let chat_name = chat_name(namespace, name).into_owned();
        let function = Function {
            name: &chat_name,
            description: description(tool),
            parameters: if is_custom {
                Some(free_text)
            } else {
                tool.parameters
            },
            strict: tool.strict.filter(|_| !is_custom),
        };
        let json = function.json()?;
        let stands_for = ToolName {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            is_custom,
        };
        self.names.0.insert(chat_name.clone(), stands_for);
        self.functions.push((chat_name, json));
        Ok(())
    }

    /// `tool_choice` in the form of a chat; `allowed_tools` removes the other functions.
    pub(super) fn choice(&mut self, choice: &RawValue) -> Result<String, RequestError> {
        #[derive(Deserialize)]
        struct Choice {
            #[serde(rename = "type")]
            kind: String,
            name: Option<String>,
            namespace: Option<String>,
            mode: Option<String>,
            tools: Option<Vec<Choice>>,
        }
        const PARAM: &str = "tool_choice";
        let text = choice.get();
        if text.starts_with('"') {
            return Ok(text.to_owned());
        }
        let wrong = |_| refused(PARAM, "`tool_choice` must be a mode or name a tool");
        let choice: Choice = serde_json::from_str(text).map_err(wrong)?;
        let hosted = |kind: &str| {
            let message = format!(
                "`tool_choice` wants a tool of type `{kind}`, which no engine runs; name a \
                 function or leave it out"
            );
            refused(PARAM, &message)
        };
        let name_of = |choice: &Choice| {
            let name = choice.name.as_deref().filter(|_| is_own(&choice.kind));
            name.map(|name| chat_name(choice.namespace.as_deref(), name).into_owned())
        };
        if choice.kind == "allowed_tools" {
            let allowed = choice.tools.iter().flatten().filter_map(name_of);
            let allowed: Vec<String> = allowed.collect();
            self.functions.retain(|(name, _)| allowed.contains(name));
            let mode = choice.mode.as_deref().unwrap_or("auto");
            return Ok(serde_json::json!(mode).to_string());
        }
        let name = name_of(&choice).ok_or_else(|| hosted(&choice.kind))?;
        Ok(serde_json::json!({"type": "function", "function": {"name": name}}).to_string())
    }
}

/// The description of a tool. The format of free-text input is described in words for the model.
fn description(tool: &Tool<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Grammar {
        syntax: String,
        definition: String,
    }
    let grammar = tool.format.filter(|_| tool.kind == "custom");
    let grammar = grammar.and_then(|format| serde_json::from_str::<Grammar>(format.get()).ok());
    let Some(Grammar { syntax, definition }) = grammar else {
        return tool.description.clone();
    };
    let own = tool.description.as_deref().unwrap_or_default();
    Some(format!(
        "{own}\n\n`input` follows this grammar ({syntax}):\n{definition}"
    ))
}

fn constant(json: &'static str) -> Result<&'static RawValue, RequestError> {
    serde_json::from_str(json).map_err(|error| refused("tools", &error.to_string()))
}
