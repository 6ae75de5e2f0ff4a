//! What an action runs, as its client wrote it: read once, within bounds.

mod check;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
/// Headers of a request at most.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of all headers of a request.
pub(crate) const HEADERS_BYTES_MAX: usize = 32 << 10;
/// Longest time that a request may be given, in seconds.
pub(crate) const TIMEOUT_S_MAX: u64 = 86_400;

/// What to run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionBody {
    /// A process of this machine.
    Process(ProcessBody),
    /// A request to a server that the tenant may reach.
    Http(HttpBody),
    /// A request to a service on the action's devices.
    Service(ServiceBody),
}

/// A command and what it is given.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ProcessBody {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it reads.
    pub stdin: String,
    /// Variables in addition to those that every action has.
    pub env: BTreeMap<String, String>,
    /// Where it runs; where the daemon's actions run if there is none.
    pub cwd: Option<String>,
}

/// A request.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct HttpBody {
    /// Its method.
    pub method: String,
    /// Scheme, host and port; empty where a service answers.
    pub base: String,
    /// What follows.
    pub path_and_query: String,
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
    /// How long it may take, in seconds.
    pub timeout_s: Option<u64>,
}

/// A request to a service.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ServiceBody {
    /// The service.
    pub service: String,
    /// The request.
    pub http: HttpBody,
}

/// What is wrong with the description of an action: which field, and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct BodyError {
    field: String,
    problem: String,
}

impl BodyError {
    fn new(field: &str, problem: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// The field; `body` for all of it.
    pub fn field(&self) -> &str {
        &self.field
    }
}

/// As clients write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    command: Option<Vec<String>>,
    shell: Option<String>,
    stdin: Option<String>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
    service: Option<String>,
    http: Option<WrittenHttp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHttp {
    method: Option<String>,
    url: String,
    headers: Option<BTreeMap<String, String>>,
    body: Option<String>,
    timeout_s: Option<u64>,
}

impl ActionBody {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn parse(json: &[u8]) -> Result<Self, BodyError> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let written: Written = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            read_error(&path, &error.into_inner())
        })?;
        reader
            .end()
            .map_err(|error| BodyError::new("body", format!("is not one JSON object: {error}")))?;
        written.checked()
    }

    /// SHA-256 of its canonical form, in hexadecimal digits: the same for descriptions that differ
    /// only in the order of fields, in spaces, or in what the defaults are.
    pub fn digest(&self) -> String {
        // Maps are ordered and all keys are texts, so that this can't fail.
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        hex(&canonical)
    }

    /// A name of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
            Self::Http(_) => "http",
            Self::Service(_) => "service",
        }
    }
}

impl HttpBody {
    /// How long it may take, if it says so.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_s.map(Duration::from_secs)
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

fn read_error(path: &str, error: &serde_json::Error) -> BodyError {
    let told = error.to_string();
    let quoted = |start: &str| {
        let rest = told.strip_prefix(start)?;
        rest.split('`').next().map(str::to_owned)
    };
    let within = |name: &str| match path.rsplit_once('.') {
        // The path of an unknown field ends with its name already.
        Some((outer, last)) if last == name => format!("{outer}.{name}"),
        _ if path == "." || path == name => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    if let Some(name) = quoted("missing field `") {
        return BodyError::new(&within(&name), "is missing; send it");
    }
    if let Some(name) = quoted("unknown field `") {
        return BodyError::new(&within(&name), "is not known; leave it out");
    }
    let field = if path == "." { "body" } else { path };
    BodyError::new(field, format!("can't be read: {told}; correct it"))
}

#[cfg(test)]
mod tests;
