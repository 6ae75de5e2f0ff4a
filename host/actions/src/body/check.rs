//! The limits of descriptions.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Method, Uri};
use treadle_trust::base_url;

use super::{
    ARG_BYTES_MAX, ARGS_BYTES_MAX, ARGS_MAX, ActionBody, BodyError, ENV_BYTES_MAX, ENV_MAX,
    HEADERS_BYTES_MAX, HEADERS_MAX, HttpRequest, NAME_BYTES_MAX, PATH_BYTES_MAX, ProcessBody,
    STDIN_BYTES_MAX, SandboxCommand, ServiceCall,
};

/// Prefix of variables that treadle sets.
const OWN_PREFIX: &str = "TREADLE_";
/// Headers that the connection determines.
const OWN_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];
const METHODS: [Method; 6] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

type Checked<T = ()> = Result<T, BodyError>;

impl ActionBody {
    pub(super) fn checked(mut self) -> Checked<Self> {
        match &mut self {
            Self::Process(process) => process.check()?,
            Self::Sandbox(command) => command.check()?,
            Self::Held(_) => {}
            Self::Http(request) => request.check()?,
            Self::Service(call) => call.check()?,
        }
        Ok(self)
    }
}

impl ProcessBody {
    fn check(&self) -> Checked {
        let Self {
            command,
            stdin,
            env,
            cwd,
        } = self;
        check_process("process", command, stdin, env, cwd.as_deref())
    }
}

impl SandboxCommand {
    fn check(&self) -> Checked {
        let Self {
            id,
            command,
            stdin,
            env,
            cwd,
        } = self;
        check_name("sandbox.id", id)?;
        check_process("sandbox", command, stdin, env, cwd.as_deref())
    }
}

fn check_process(
    within: &str,
    command: &[String],
    stdin: &str,
    env: &BTreeMap<String, String>,
    cwd: Option<&str>,
) -> Checked {
    check_command(&format!("{within}.command"), command)?;
    let remedy = "have the action read a file or fetch what it needs";
    at_most(
        &format!("{within}.stdin"),
        stdin.len(),
        STDIN_BYTES_MAX,
        remedy,
    )?;
    check_env(&format!("{within}.env"), env)?;
    if let Some(cwd) = cwd {
        let field = &format!("{within}.cwd");
        at_most(field, cwd.len(), PATH_BYTES_MAX, "use a shorter path")?;
        no_nul(field, cwd)?;
        if cwd.is_empty() {
            return Err(BodyError::new(field, "is empty; name a folder"));
        }
    }
    Ok(())
}

impl HttpRequest {
    fn check(&mut self) -> Checked {
        check_message("http", &self.method, &mut self.headers, &self.body)?;
        at_most("http.url", self.url.len(), PATH_BYTES_MAX, "shorten it")?;
        split_url("http.url", &self.url)?;
        match &self.quota {
            Some(quota) => check_name("http.quota", quota),
            None => Ok(()),
        }
    }
}

impl ServiceCall {
    fn check(&mut self) -> Checked {
        check_name("service.name", &self.name)?;
        check_message("service", &self.method, &mut self.headers, &self.body)?;
        let field = "service.path";
        at_most(field, self.path.len(), PATH_BYTES_MAX, "shorten it")?;
        let uri: Option<Uri> = self.path.parse().ok();
        let has_form = self.path.starts_with('/')
            && !self.path.starts_with("//")
            && !self.path.contains('#')
            && uri.is_some_and(|uri| uri.authority().is_none());
        if !has_form {
            let problem =
                "is not a valid path; send one such as /v1/score, treadle adds the address";
            return Err(BodyError::new(field, problem));
        }
        Ok(())
    }
}

fn at_most(field: &str, bytes: usize, max: usize, remedy: &str) -> Checked {
    if bytes > max {
        let problem = format!("has {bytes} bytes, the limit is {max}; {remedy}");
        return Err(BodyError::new(field, problem));
    }
    Ok(())
}

fn no_nul(field: &str, text: &str) -> Checked {
    if text.contains('\0') {
        let problem = "has a NUL byte, which programs can't receive; remove it";
        return Err(BodyError::new(field, problem));
    }
    Ok(())
}

/// Checks the name of a service or a quota.
pub(crate) fn check_name(field: &str, name: &str) -> Checked {
    at_most(field, name.len(), NAME_BYTES_MAX, "use its name")?;
    let is_char = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    if name.is_empty() || !name.bytes().all(is_char) {
        let problem = "is not a valid name; use letters, digits, `-`, `.` and `_`";
        return Err(BodyError::new(field, problem));
    }
    Ok(())
}

pub(crate) fn check_command(field: &str, words: &[String]) -> Checked {
    if words.first().is_none_or(String::is_empty) {
        return Err(BodyError::new(field, "is empty; name a program"));
    }
    if words.len() > ARGS_MAX {
        let count = words.len();
        let problem = format!("has {count} words, the limit is {ARGS_MAX}; put them into a file");
        return Err(BodyError::new(field, problem));
    }
    for (at, word) in words.iter().enumerate() {
        let field = format!("{field}[{at}]");
        at_most(&field, word.len(), ARG_BYTES_MAX, "put it into a file")?;
        no_nul(&field, word)?;
    }
    let all = words.iter().map(String::len).sum();
    at_most(field, all, ARGS_BYTES_MAX, "put it into a file")
}

pub(crate) fn check_env(whole: &str, env: &BTreeMap<String, String>) -> Checked {
    if env.len() > ENV_MAX {
        let count = env.len();
        let problem = format!("has {count} variables, the limit is {ENV_MAX}; use a file");
        return Err(BodyError::new(whole, problem));
    }
    for (name, value) in env {
        let field = format!("{whole}.{}", name.escape_default());
        if name.is_empty() || name.contains('=') || name.contains(char::is_control) {
            let problem = "is not a valid variable name; use letters, digits and `_`";
            return Err(BodyError::new(&field, problem));
        }
        if name.starts_with(OWN_PREFIX) {
            let problem = format!("is set by treadle; use a name without {OWN_PREFIX}");
            return Err(BodyError::new(&field, problem));
        }
        let bytes = name.len() + value.len();
        at_most(&field, bytes, ARG_BYTES_MAX, "shorten it")?;
        no_nul(&field, value)?;
    }
    let all = env.iter().map(|(name, value)| name.len() + value.len());
    at_most(whole, all.sum(), ENV_BYTES_MAX, "put it into a file")
}

/// Checks the common fields of requests to servers and to services.
fn check_message(
    whole: &str,
    method: &str,
    headers: &mut BTreeMap<String, String>,
    body: &str,
) -> Checked {
    if !METHODS.iter().any(|known| known.as_str() == method) {
        let problem = "is not a supported method; send GET, HEAD, POST, PUT, PATCH or DELETE";
        return Err(BodyError::new(&format!("{whole}.method"), problem));
    }
    let field = format!("{whole}.body");
    at_most(&field, body.len(), STDIN_BYTES_MAX, "send less")?;
    let field = format!("{whole}.headers");
    if headers.len() > HEADERS_MAX {
        let problem = format!("has more than {HEADERS_MAX} headers; send fewer");
        return Err(BodyError::new(&field, problem));
    }
    let all = headers.iter().map(|(name, value)| name.len() + value.len());
    at_most(&field, all.sum(), HEADERS_BYTES_MAX, "send less")?;
    for (name, value) in std::mem::take(headers) {
        let field = format!("{field}.{}", name.escape_default());
        let name = name.to_ascii_lowercase();
        let has_form = HeaderName::from_bytes(name.as_bytes()).is_ok()
            && HeaderValue::from_str(&value).is_ok();
        if !has_form {
            let problem = "is not a valid HTTP header; correct its name and value";
            return Err(BodyError::new(&field, problem));
        }
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(BodyError::new(&field, "is set by treadle; leave it out"));
        }
        if headers.insert(name, value).is_some() {
            return Err(BodyError::new(&field, "is set twice; remove one"));
        }
    }
    Ok(())
}

/// Splits a URL into its server and the rest.
pub(crate) fn split_url(field: &str, url: &str) -> Checked<(String, String)> {
    let wrong = |problem: String| BodyError::new(field, problem);
    if url.contains('#') {
        return Err(wrong("has a fragment; leave out what follows the #".into()));
    }
    let uri = url.parse::<Uri>();
    let uri =
        uri.map_err(|error| wrong(format!("is not a URL: {error}; send http://host/path")))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", |a| a.as_str());
    let base = format!("{scheme}://{authority}");
    let base = base_url(&base).map_err(|error| wrong(format!("can't be used: {error}")))?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    Ok((base.to_owned(), path.to_owned()))
}
