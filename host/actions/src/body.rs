//! The description of an action: parsing, limits, canonical form.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(crate) use check::{check_command, check_env, check_name, split_url};

/// Maximum number of words in a command.
pub(crate) const ARGS_MAX: usize = 4_096;
/// Maximum size of one word or one variable: the limit of Linux.
pub(crate) const ARG_BYTES_MAX: usize = (128 << 10) - 1;
/// Maximum size of all words of a command.
pub(crate) const ARGS_BYTES_MAX: usize = 1 << 20;
/// Maximum number of environment variables.
pub(crate) const ENV_MAX: usize = 256;
/// Maximum size of all names and values of the environment.
pub(crate) const ENV_BYTES_MAX: usize = 256 << 10;
/// Maximum size of the standard input, or of the body of a request.
pub(crate) const STDIN_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a folder's path or of a URL.
pub(crate) const PATH_BYTES_MAX: usize = 4_096;
/// Maximum length of a name of a service or of a quota.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Maximum number of headers of a request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Maximum size of all headers of a request.
pub(crate) const HEADERS_BYTES_MAX: usize = 32 << 10;

/// What to run: a JSON object with exactly one of `process`, `sandbox`, `http` and `service`. It is
/// serialized in the same form, which [`ActionBody::parse`] accepts.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionBody {
    /// A process on this machine.
    Process(ProcessBody),
    /// A command in a sandbox.
    Sandbox(SandboxCommand),
    /// Work that a handler of this daemon does itself; clients can't send it.
    Held(HandlerWork),
    /// A request to a server that is allowed for the tenant.
    Http(HttpRequest),
    /// A request to the service on the action's devices.
    Service(ServiceCall),
}

/// A command, its input and its environment.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessBody {
    /// The program and its arguments, without a shell.
    pub command: Vec<String>,
    /// Standard input, at most 1 MiB.
    #[serde(default)]
    pub stdin: String,
    /// Variables in addition to those that every action has.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder, relative to the folder of all actions; that folder by default.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// A command in a sandbox, its input and its environment.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxCommand {
    /// Id of the sandbox, which must belong to the same tenant.
    pub id: String,
    /// The program and its arguments, without a shell.
    pub command: Vec<String>,
    /// Standard input, at most 1 MiB.
    #[serde(default)]
    pub stdin: String,
    /// Variables in addition to those of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder in the sandbox; root's home by default.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// Work that a handler does itself when its resources are granted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerWork {
    /// Identifies the waiting handler.
    pub token: String,
    /// The sandbox that it concerns, for display.
    pub sandbox: String,
    /// What the work is, for display.
    pub what: String,
}

/// A request to a server.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// Its method.
    #[serde(default = "get")]
    pub method: String,
    /// Its URL.
    pub url: String,
    /// Its headers, in lowercase after parsing.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its body, at most 1 MiB.
    #[serde(default)]
    pub body: String,
    /// The quota that a 429 response belongs to. Without one, 429 is an ordinary result.
    #[serde(default)]
    pub quota: Option<String>,
}

/// A request to a service.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceCall {
    /// The service.
    pub name: String,
    /// Its method.
    #[serde(default = "get")]
    pub method: String,
    /// Path relative to the service's address.
    pub path: String,
    /// Its headers, in lowercase after parsing.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its body, at most 1 MiB.
    #[serde(default)]
    pub body: String,
}

fn get() -> String {
    "GET".to_owned()
}

/// An invalid description: the field, the problem and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct BodyError {
    field: String,
    problem: String,
}

impl BodyError {
    pub(crate) fn new(field: &str, problem: impl Into<String>) -> Self {
        let (field, problem) = (field.to_owned(), problem.into());
        Self { field, problem }
    }

    /// The invalid field; `body` for the whole.
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl ActionBody {
    /// Parses and checks a description.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn parse(json: &[u8]) -> Result<Self, BodyError> {
        let whole =
            "send one JSON object with exactly one of `process`, `sandbox`, `http` and `service`";
        let body: Self = read(json, whole)?;
        body.checked()
    }

    /// Its canonical form, which [`ActionBody::parse`] accepts.
    pub fn to_json(&self) -> Vec<u8> {
        // Can't fail, because maps are ordered and all keys are strings.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// SHA-256 of its canonical form in hexadecimal: equal for descriptions that differ only in the
    /// order of fields, in whitespace, or in explicit defaults.
    pub fn digest(&self) -> String {
        hex(&self.to_json())
    }

    /// The service that it calls.
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Service(call) => Some(&call.name),
            _ => None,
        }
    }

    /// The sandbox that it runs in.
    pub fn sandbox(&self) -> Option<&str> {
        match self {
            Self::Sandbox(command) => Some(&command.id),
            Self::Held(work) => Some(&work.sandbox),
            _ => None,
        }
    }

    /// The quota that it uses.
    pub fn quota(&self) -> Option<&str> {
        match self {
            Self::Http(request) => request.quota.as_deref(),
            _ => None,
        }
    }
}

/// SHA-256 of the bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Parses JSON; `whole` is the remedy if no single field is invalid.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(json: &[u8], whole: &str) -> Result<T, BodyError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        read_error(&path, &error.into_inner(), whole)
    })?;
    let ended = reader.end();
    ended.map_err(|error| BodyError::new("body", format!("goes on: {error}; {whole}")))?;
    Ok(read)
}

fn read_error(path: &str, error: &serde_json::Error, whole: &str) -> BodyError {
    let told = error.to_string();
    let quoted = |start: &str| {
        let rest = told.strip_prefix(start)?;
        rest.split('`').next().map(str::to_owned)
    };
    let within = |name: &str| match path {
        "." => name.to_owned(),
        // The path of an unknown field ends with its name already.
        _ if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        _ => format!("{path}.{name}"),
    };
    if let Some(name) = quoted("missing field `") {
        return BodyError::new(&within(&name), "is missing; send it");
    }
    let unknown = quoted("unknown field `").or_else(|| quoted("unknown variant `"));
    if let Some(name) = unknown {
        let known = told.split_once("expected ");
        let known = known.map_or("", |(_, known)| known);
        let known = known
            .rsplit_once(" at line")
            .map_or(known, |(known, _)| known);
        let problem = format!("is not known; leave it out, or send {known}");
        return BodyError::new(&within(&name), problem);
    }
    if path == "." {
        return BodyError::new("body", format!("can't be read: {told}; {whole}"));
    }
    BodyError::new(path, format!("can't be read: {told}; correct it"))
}

#[cfg(test)]
mod tests;
