//! The bounds of descriptions.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Method, Uri};
use treadle_trust::base_url;

use super::{
    ARG_BYTES_MAX, ARGS_BYTES_MAX, ARGS_MAX, ActionBody, BodyError, ENV_BYTES_MAX, ENV_MAX,
    HEADERS_BYTES_MAX, HEADERS_MAX, HttpBody, PATH_BYTES_MAX, ProcessBody, STDIN_BYTES_MAX,
    ServiceBody, TIMEOUT_S_MAX, Written, WrittenHttp,
};

/// Variables that treadle sets begin so.
const OWN_PREFIX: &str = "TREADLE_";
/// Headers that the connection decides.
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

impl Written {
    pub(super) fn checked(self) -> Result<ActionBody, BodyError> {
        let given = [
            self.command.is_some(),
            self.shell.is_some(),
            self.http.is_some(),
        ];
        if given.iter().filter(|is| **is).count() != 1 {
            let problem = "must have exactly one of `command`, `shell` and `http`; a request to a \
                           service has `service` and `http`";
            return Err(BodyError::new("body", problem));
        }
        if self.http.is_some() {
            return self.request();
        }
        if self.service.is_some() {
            let problem = "goes with `http` only; leave it out, or send a request";
            return Err(BodyError::new("service", problem));
        }
        self.process().map(ActionBody::Process)
    }

    fn process(self) -> Result<ProcessBody, BodyError> {
        let command = match (self.command, self.shell) {
            (Some(words), _) => {
                check_words(&words)?;
                words
            }
            (None, text) => {
                let text = text.unwrap_or_default();
                if text.trim().is_empty() {
                    return Err(BodyError::new("shell", "is empty; say what to run"));
                }
                at_most("shell", text.len(), ARG_BYTES_MAX, "put it into a file")?;
                no_nul("shell", &text)?;
                vec!["sh".to_owned(), "-c".to_owned(), text]
            }
        };
        let stdin = self.stdin.unwrap_or_default();
        let remedy = "have the action read a file or fetch what it needs";
        at_most("stdin", stdin.len(), STDIN_BYTES_MAX, remedy)?;
        let env = self.env.unwrap_or_default();
        check_env(&env)?;
        if let Some(cwd) = &self.cwd {
            at_most("cwd", cwd.len(), PATH_BYTES_MAX, "use a shorter path")?;
            no_nul("cwd", cwd)?;
            if cwd.is_empty() {
                return Err(BodyError::new("cwd", "is empty; name a folder"));
            }
        }
        Ok(ProcessBody {
            command,
            stdin,
            env,
            cwd: self.cwd,
        })
    }

    fn request(self) -> Result<ActionBody, BodyError> {
        for (field, is_given) in [
            ("stdin", self.stdin.is_some()),
            ("env", self.env.is_some()),
            ("cwd", self.cwd.is_some()),
        ] {
            if is_given {
                let problem = "is of processes; leave it out of a request";
                return Err(BodyError::new(field, problem));
            }
        }
        // The caller has seen that it is there.
        let Some(http) = self.http else {
            return Err(BodyError::new("http", "is missing; send it"));
        };
        let Some(service) = self.service else {
            return http.checked(false).map(ActionBody::Http);
        };
        at_most("service", service.len(), 128, "use its name")?;
        let is_char = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
        if service.is_empty() || !service.bytes().all(is_char) {
            let problem = "is no name of a service; use letters, digits, `-`, `.` and `_`";
            return Err(BodyError::new("service", problem));
        }
        let http = http.checked(true)?;
        Ok(ActionBody::Service(ServiceBody { service, http }))
    }
}

impl WrittenHttp {
    fn checked(self, of_service: bool) -> Result<HttpBody, BodyError> {
        let method = self.method.unwrap_or_else(|| "GET".to_owned());
        let known = [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ];
        if !known.iter().any(|m| m.as_str() == method) {
            let problem = "is no method; send GET, HEAD, POST, PUT, PATCH or DELETE";
            return Err(BodyError::new("http.method", problem));
        }
        at_most("http.url", self.url.len(), PATH_BYTES_MAX, "shorten it")?;
        let (base, path_and_query) = if of_service {
            (String::new(), path_of_service(&self.url)?)
        } else {
            split(&self.url)?
        };
        let headers = self.headers.unwrap_or_default();
        let body = self.body.unwrap_or_default();
        at_most("http.body", body.len(), STDIN_BYTES_MAX, "send less")?;
        if let Some(s) = self.timeout_s
            && !(1..=TIMEOUT_S_MAX).contains(&s)
        {
            let problem = format!("is {s}; send 1 to {TIMEOUT_S_MAX} seconds");
            return Err(BodyError::new("http.timeout_s", problem));
        }
        Ok(HttpBody {
            method,
            base,
            path_and_query,
            headers: check_headers(headers)?,
            body,
            timeout_s: self.timeout_s,
        })
    }
}

fn at_most(field: &str, bytes: usize, max: usize, remedy: &str) -> Result<(), BodyError> {
    if bytes > max {
        let problem = format!("has {bytes} bytes, and may have {max}; {remedy}");
        return Err(BodyError::new(field, problem));
    }
    Ok(())
}

fn no_nul(field: &str, text: &str) -> Result<(), BodyError> {
    if text.contains('\0') {
        let problem = "holds a NUL byte, which no program can be given; leave it out";
        return Err(BodyError::new(field, problem));
    }
    Ok(())
}

fn check_words(words: &[String]) -> Result<(), BodyError> {
    if words.first().is_none_or(String::is_empty) {
        return Err(BodyError::new("command", "is empty; name a program"));
    }
    if words.len() > ARGS_MAX {
        let problem = format!(
            "has {} words, and may have {ARGS_MAX}; put them into a file",
            words.len()
        );
        return Err(BodyError::new("command", problem));
    }
    for (at, word) in words.iter().enumerate() {
        let field = format!("command[{at}]");
        at_most(&field, word.len(), ARG_BYTES_MAX, "put it into a file")?;
        no_nul(&field, word)?;
    }
    let all = words.iter().map(String::len).sum();
    at_most("command", all, ARGS_BYTES_MAX, "put it into a file")
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), BodyError> {
    if env.len() > ENV_MAX {
        let problem = format!(
            "has {} variables, and may have {ENV_MAX}; put them into a file",
            env.len()
        );
        return Err(BodyError::new("env", problem));
    }
    for (name, value) in env {
        let field = format!("env.{name}").replace('\0', "\\0");
        if name.is_empty() || name.contains(['=', '\0']) {
            let problem = "is no name of a variable; use letters, digits and `_`";
            return Err(BodyError::new(&field, problem));
        }
        if name.starts_with(OWN_PREFIX) {
            let problem = format!("is set by treadle; use a name without {OWN_PREFIX}");
            return Err(BodyError::new(&field, problem));
        }
        at_most(
            &field,
            name.len() + value.len(),
            ARG_BYTES_MAX,
            "shorten it",
        )?;
        no_nul(&field, value)?;
    }
    let all = env.iter().map(|(name, value)| name.len() + value.len());
    at_most("env", all.sum(), ENV_BYTES_MAX, "put it into a file")
}

fn check_headers(headers: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, BodyError> {
    if headers.len() > HEADERS_MAX {
        let problem = format!("has more than {HEADERS_MAX} headers; send fewer");
        return Err(BodyError::new("http.headers", problem));
    }
    let all = headers.iter().map(|(name, value)| name.len() + value.len());
    at_most("http.headers", all.sum(), HEADERS_BYTES_MAX, "send less")?;
    let mut read = BTreeMap::new();
    for (name, value) in headers {
        let field = format!("http.headers.{}", name.escape_default());
        let name = name.to_ascii_lowercase();
        let is_form = HeaderName::from_bytes(name.as_bytes()).is_ok()
            && HeaderValue::from_str(&value).is_ok();
        if !is_form {
            let problem = "is no header of HTTP; correct its name and value";
            return Err(BodyError::new(&field, problem));
        }
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(BodyError::new(&field, "is set by treadle; leave it out"));
        }
        if read.insert(name, value).is_some() {
            return Err(BodyError::new(&field, "is there twice; leave one out"));
        }
    }
    Ok(read)
}

/// A URL's server, and what follows.
fn split(url: &str) -> Result<(String, String), BodyError> {
    let wrong = |problem: String| BodyError::new("http.url", problem);
    if url.contains('#') {
        return Err(wrong("has a fragment; leave out what follows the #".into()));
    }
    let uri: Uri = url
        .parse()
        .map_err(|error| wrong(format!("is no URL: {error}; send http://host/path")))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", |a| a.as_str());
    let base = format!("{scheme}://{authority}");
    let base = base_url(&base).map_err(|error| wrong(format!("can't be used: {error}")))?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    Ok((base.to_owned(), path.to_owned()))
}

fn path_of_service(url: &str) -> Result<String, BodyError> {
    let problem = "is no path; send one such as /v1/score, treadle knows where the service is";
    let uri: Option<Uri> = url.parse().ok();
    let is_path = url.starts_with('/') && !url.starts_with("//") && !url.contains('#');
    match uri {
        Some(uri) if is_path && uri.authority().is_none() => Ok(url.to_owned()),
        _ => Err(BodyError::new("http.url", problem)),
    }
}
