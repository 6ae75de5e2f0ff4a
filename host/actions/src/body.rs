//! What an action runs, as its client wrote it: read once, within bounds.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(crate) use check::{check_command, check_env, check_name, split_url};

/// Words of a command at most.
pub(crate) const ARGS_MAX: usize = 4_096;
/// Bytes of one word or one variable: what Linux passes to a program.
pub(crate) const ARG_BYTES_MAX: usize = (128 << 10) - 1;
/// Bytes of all words of a command.
pub(crate) const ARGS_BYTES_MAX: usize = 1 << 20;
/// Variables of the environment at most.
pub(crate) const ENV_MAX: usize = 256;
/// Bytes of all names and values of the environment.
pub(crate) const ENV_BYTES_MAX: usize = 256 << 10;
/// Bytes of the standard input, or of the body of a request.
pub(crate) const STDIN_BYTES_MAX: usize = 1 << 20;
/// Bytes of a folder's path or of a URL.
pub(crate) const PATH_BYTES_MAX: usize = 4_096;
/// Bytes of a name of a service or of a quota.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Headers of a request at most.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of all headers of a request.
pub(crate) const HEADERS_BYTES_MAX: usize = 32 << 10;

/// What to run: a JSON object with exactly one of `process`, `sandbox`, `http` and `service`. It is written
/// the same way, so that what is stored is read again by [`ActionBody::parse`].
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionBody {
    /// A process of this machine.
    Process(ProcessBody),
    /// A command in a sandbox.
    Sandbox(SandboxCommand),
    /// What a handler of this daemon does itself; no client sends it.
    Held(HeldWork),
    /// A request to a server that the tenant may reach.
    Http(HttpRequest),
    /// A request to the service on the action's devices.
    Service(ServiceCall),
}

/// A command and what it is given.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessBody {
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// What it reads, 1 MiB at most.
    #[serde(default)]
    pub stdin: String,
    /// Variables in addition to those that every action has.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs, from the folder of all actions on; that folder if there is none.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// A command in a sandbox, and what it is given.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxCommand {
    /// The sandbox, which is its tenant's.
    pub id: String,
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// What it reads, 1 MiB at most.
    #[serde(default)]
    pub stdin: String,
    /// Variables in addition to those of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs inside; root's home if there is none.
    #[serde(default)]
    pub cwd: Option<String>,
}

/// Work that a handler does itself, once it has the resources.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldWork {
    /// By which the handler is found.
    pub token: String,
    /// Where it is done, for those who look.
    pub sandbox: String,
    /// What it is, for those who look.
    pub what: String,
}

/// A request to a server.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// Its method.
    #[serde(default = "get")]
    pub method: String,
    /// Where it goes.
    pub url: String,
    /// Its headers, in small letters once it is read.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its body, 1 MiB at most.
    #[serde(default)]
    pub body: String,
    /// The quota that an answer of 429 is a refusal of. Without one, it is an answer like others.
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
    /// What follows the service's own address.
    pub path: String,
    /// Its headers, in small letters once it is read.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its body, 1 MiB at most.
    #[serde(default)]
    pub body: String,
}

fn get() -> String {
    "GET".to_owned()
}

/// What is wrong with a description: which field, and the remedy.
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

    /// The field; `body` for all of it.
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl ActionBody {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn parse(json: &[u8]) -> Result<Self, BodyError> {
        let whole =
            "send one JSON object with exactly one of `process`, `sandbox`, `http` and `service`";
        let body: Self = read(json, whole)?;
        body.checked()
    }

    /// Its canonical form, which is read again by [`ActionBody::parse`].
    pub fn to_json(&self) -> Vec<u8> {
        // Maps are ordered and all keys are texts, so that this can't fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// SHA-256 of its canonical form, in hexadecimal digits: the same for descriptions that differ
    /// only in the order of fields, in spaces, or in what the defaults are.
    pub fn digest(&self) -> String {
        hex(&self.to_json())
    }

    /// The service that it asks.
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Service(call) => Some(&call.name),
            _ => None,
        }
    }

    /// The sandbox that it is done in.
    pub fn sandbox(&self) -> Option<&str> {
        match self {
            Self::Sandbox(command) => Some(&command.id),
            Self::Held(work) => Some(&work.sandbox),
            _ => None,
        }
    }

    /// The quota that it draws from.
    pub fn quota(&self) -> Option<&str> {
        match self {
            Self::Http(request) => request.quota.as_deref(),
            _ => None,
        }
    }
}

/// SHA-256 of some bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads JSON; `whole` is the remedy where no field is to blame.
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
