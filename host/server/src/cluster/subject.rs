//! Finding the shard of a request, by the job or the program that it names.

use super::member::{Parts, Shard};
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request};
use axum::http::{HeaderMap, Method, Response};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use treadle_auth as auth;
use treadle_endpoints::ACTION_BYTES_MAX;
use treadle_gateway::routing::shard_of;
use treadle_http::{error_response, refuse};
use treadle_model::{ClientName, Tenant};
use treadle_runs::nodes;
use treadle_sandbox_apis::sandbox_named;
use treadle_wire::{ErrorBody, ErrorCode};

/// The header with the shard of a request.
const SHARD_HEADER: &str = "x-treadle-shard";
/// The header with the job of a request, as in generation requests.
const JOB_HEADER: &str = "x-treadle-job";
/// Paths of tenants and tokens, which the first shard stores.
const AT_HOME: [&str; 3] = ["/api/v1/tenants", "/api/v1/tokens", "/api/v1/audit"];
/// Prefixes of paths that continue with a program.
const PROGRAMS: [&str; 2] = ["/api/v1/programs/", "/profiles/"];
/// Paths whose body names the program or the job.
const IN_BODY: [&str; 6] = [
    "/api/v1/actions",
    "/programs/release",
    "/api/v1/sandboxes",
    "/sandboxes",
    "/v2/sandboxes",
    "/run_code",
];

/// The subject of a request, which determines its shard.
#[derive(Debug, PartialEq)]
enum Subject {
    Shard(String),
    Job(String),
    Program(String),
    /// A node, by its mark.
    Node(String),
    /// A program or a job in the body, which is not read yet.
    InBody,
    Daemon,
}

#[derive(Deserialize)]
struct SessionQuery {
    session_id: Option<String>,
}

#[derive(Deserialize)]
struct ParentQuery {
    parent: Option<String>,
}

/// The shard of a request, and the request to forward.
pub(super) async fn find(
    parts: &Parts,
    request: Request,
) -> Result<(&Shard, Request), Box<Response<Body>>> {
    let home = &parts.shards[0];
    // With one shard, only an explicit shard name can be wrong.
    if parts.shards.len() == 1 && !request.headers().contains_key(SHARD_HEADER) {
        return Ok((home, request));
    }
    let (subject, request) = match subject(&request) {
        Subject::InBody => read_subject(request).await?,
        subject => (subject, request),
    };
    let shard = match subject {
        // For a body without a program, the shard's own response says what is missing.
        Subject::Daemon | Subject::InBody => home,
        Subject::Shard(name) => named(parts, &name)?,
        Subject::Job(job) => {
            let tenant = tenant(parts, request.headers()).await?;
            let job = ClientName::parse("job", &job).map_err(|e| refused(&e.into()))?;
            dealt(parts, &tenant.inside(&job))
        }
        Subject::Node(mark) => dealt(parts, &mark),
        Subject::Program(program) => {
            let tenant = tenant(parts, request.headers()).await?;
            let name = ClientName::parse("program_id", &program).map_err(|e| refused(&e.into()))?;
            of_program(parts, &tenant, &name).await?
        }
    };
    Ok((shard, request))
}

/// The shard that a job or a node is assigned to.
fn dealt<'a>(parts: &'a Parts, name: &str) -> &'a Shard {
    let names: Vec<_> = parts.shards.iter().map(|s| s.name.clone()).collect();
    &parts.shards[shard_of(&names, name)]
}

fn subject(request: &Request) -> Subject {
    let path = request.uri().path();
    if AT_HOME.iter().any(|start| path.starts_with(start)) {
        return Subject::Daemon;
    }
    let header = |name| {
        let value = request.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    if let Some(shard) = header(SHARD_HEADER) {
        return Subject::Shard(shard);
    }
    if let Some(mark) = node_of(request) {
        return Subject::Node(mark);
    }
    if let Some(job) = header(JOB_HEADER) {
        return Subject::Job(job);
    }
    let segment = |start: &str| {
        let rest = path.strip_prefix(start)?.split('/').next()?;
        let decoded = percent_decode_str(rest).decode_utf8();
        decoded.ok().map(String::from)
    };
    if path == "/api/v1/programs" {
        let query = Query::<ParentQuery>::try_from_uri(request.uri()).ok();
        let parent = query.and_then(|query| query.0.parent);
        return parent.map_or(Subject::Daemon, Subject::Program);
    }
    if let Some(job) = segment("/api/v1/jobs/") {
        return Subject::Job(job);
    }
    if let Some(program) = PROGRAMS.iter().find_map(|start| segment(start)) {
        return Subject::Program(program);
    }
    if path == "/finish_session" {
        let query = Query::<SessionQuery>::try_from_uri(request.uri());
        let session = query.ok().and_then(|query| query.0.session_id);
        return session.map_or(Subject::Daemon, Subject::Program);
    }
    if IN_BODY.contains(&path) && request.method() == Method::POST {
        return Subject::InBody;
    }
    Subject::Daemon
}

/// The node that sent a request, or that has the sandbox which it names.
fn node_of(request: &Request) -> Option<String> {
    if request.uri().path() == nodes::PATH {
        return request.uri().query().map(str::to_owned);
    }
    let sandbox = sandbox_named(request)?;
    nodes::mark_of_sandbox(sandbox).map(str::to_owned)
}

fn named<'a>(parts: &'a Parts, name: &str) -> Result<&'a Shard, Box<Response<Body>>> {
    let found = parts.shards.iter().find(|shard| shard.name == name);
    found.ok_or_else(|| {
        let message = format!(
            "no shard `{name}`; {SHARD_HEADER} must be one of {}",
            names(parts)
        );
        Box::new(refuse(ErrorCode::InvalidField, message))
    })
}

fn names(parts: &Parts) -> String {
    let names: Vec<_> = parts.shards.iter().map(|s| s.name.as_str()).collect();
    names.join(", ")
}

async fn tenant(parts: &Parts, headers: &HeaderMap) -> Result<Tenant, Box<Response<Body>>> {
    let tenant = auth::tenant_of(&parts.auth, headers).await;
    tenant.map_err(|error| refused(&error))
}

/// The subject in a body, and the request with its body restored.
async fn read_subject(request: Request) -> Result<(Subject, Request), Box<Response<Body>>> {
    let (head, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, ACTION_BYTES_MAX)
        .await
        .map_err(|_| {
            let message = format!("the body is cut off, or larger than {ACTION_BYTES_MAX} bytes");
            Box::new(refuse(ErrorCode::BodyTooLarge, message))
        })?;
    let fields: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok((
        of_body(&fields),
        Request::from_parts(head, Body::from(body)),
    ))
}

/// The job or else the program that a body names; E2B's clients name them in labels.
fn of_body(fields: &Value) -> Subject {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let named = |field: &str| {
        let label = &fields["metadata"][format!("treadle_{field}")];
        text(&fields[field]).or_else(|| text(label))
    };
    let job = named("job").map(Subject::Job);
    let program = || named("program_id").map(Subject::Program);
    job.or_else(program).unwrap_or(Subject::Daemon)
}

/// The shard that has a program.
async fn of_program<'a>(
    parts: &'a Parts,
    tenant: &Tenant,
    program: &ClientName,
) -> Result<&'a Shard, Box<Response<Body>>> {
    let key = tenant.inside(program);
    let mut known = Vec::new();
    for shard in &parts.shards {
        match shard.store.program(&key).await {
            Ok(Some(row)) => known.push((row.ended.is_none(), shard)),
            Ok(None) => {}
            Err(error) => return Err(Box::new(crate::rest::store_failed(&error))),
        }
    }
    let any_live = known.iter().any(|(live, _)| *live);
    known.retain(|(live, _)| *live == any_live);
    match known.as_slice() {
        [(_, shard)] => Ok(shard),
        [] => {
            let message = format!(
                "no shard has the program `{program}`; start it with a step, or name its job with \
                 {JOB_HEADER}"
            );
            Err(Box::new(refuse(ErrorCode::ProgramUnknown, message)))
        }
        _ => {
            let message = format!(
                "several shards have a program `{program}`; name its job with {JOB_HEADER}"
            );
            Err(Box::new(refuse(ErrorCode::InvalidField, message)))
        }
    }
}

#[expect(
    clippy::unnecessary_box_returns,
    reason = "errors here are boxed: an answer is large"
)]
fn refused(error: &ErrorBody) -> Box<Response<Body>> {
    Box::new(error_response(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(method: Method, uri: &str, headers: &[(&str, &str)]) -> Subject {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        subject(&request.body(Body::empty()).expect("a request"))
    }

    #[test]
    fn a_body_names_a_job_or_a_program() {
        let of = |body: Value| of_body(&body);
        let job = Subject::Job("math".into());
        let program = Subject::Program("p".into());
        assert_eq!(of(json!({"job": "math", "program_id": "p"})), job);
        assert_eq!(of(json!({"program_id": "p"})), program);
        let labels = json!({"metadata": {"treadle_program_id": "p"}});
        assert_eq!(of(labels), program);
        let labels = json!({"metadata": {"treadle_job": "math", "treadle_program_id": "p"}});
        assert_eq!(of(labels), job);
        assert_eq!(of(json!([1])), Subject::Daemon);
    }

    #[test]
    fn a_sandbox_is_where_its_node_is() {
        let get = |uri: &str| request(Method::GET, uri, &[]);
        let sandbox = "abcdefghijklmnopqrstu";
        let mark = nodes::mark_of_sandbox(sandbox).expect("a name").to_owned();
        let node = Subject::Node(mark.clone());
        assert_eq!(get(&format!("/sandboxes/{sandbox}/pause")), node);
        let named = [("e2b-sandbox-id", sandbox)];
        assert_eq!(
            request(Method::POST, "/process.Process/Start", &named),
            node
        );
        assert_eq!(get(&format!("{}?{mark}", nodes::PATH)), node);
        assert_eq!(get("/sandboxes/short"), Subject::Daemon);
    }

    #[test]
    fn a_request_says_what_it_is_about() {
        let get = |uri| request(Method::GET, uri, &[]);
        assert_eq!(get("/programs"), Subject::Daemon);
        assert_eq!(get("/api/v1/programs"), Subject::Daemon);
        assert_eq!(
            get("/api/v1/programs?limit=2&parent=a%2Fb"),
            Subject::Program("a/b".into())
        );
        assert_eq!(
            get("/api/v1/programs/a%2Fb/steps"),
            Subject::Program("a/b".into())
        );
        assert_eq!(get("/profiles/p"), Subject::Program("p".into()));
        assert_eq!(get("/api/v1/jobs/run-1"), Subject::Job("run-1".into()));
        assert_eq!(
            request(Method::POST, "/finish_session?session_id=s+1", &[]),
            Subject::Program("s 1".into())
        );
        assert_eq!(
            request(Method::POST, "/api/v1/actions", &[]),
            Subject::InBody
        );
        let job = [(JOB_HEADER, "run-1")];
        assert_eq!(
            request(Method::POST, "/api/v1/actions", &job),
            Subject::Job("run-1".into())
        );
        let both = [(JOB_HEADER, "run-1"), (SHARD_HEADER, "b")];
        assert_eq!(
            request(Method::POST, "/api/v1/actions", &both),
            Subject::Shard("b".into())
        );
        assert_eq!(
            request(Method::GET, "/api/v1/tokens", &both),
            Subject::Daemon
        );
    }
}
