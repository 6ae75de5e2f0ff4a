//! Which shard a request is about: that of the job or of the program that it names.

use super::member::{Parts, Shard};
use crate::rest::endpoint::CONTROL_BYTES_MAX;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request};
use axum::http::{HeaderMap, Method, Response};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use treadle_auth as auth;
use treadle_gateway::routing::shard_of;
use treadle_http::{error_response, refuse};
use treadle_model::{ClientName, Tenant};
use treadle_wire::{ErrorBody, ErrorCode};

/// Names the shard that a request is about.
const SHARD_HEADER: &str = "x-treadle-shard";
/// Names the job that a request is about, as with generation requests.
const JOB_HEADER: &str = "x-treadle-job";
/// Paths about tenants and tokens, which the first shard is home to.
const AT_HOME: [&str; 3] = ["/api/v1/tenants", "/api/v1/tokens", "/api/v1/audit"];
/// Paths about the program that comes next in them.
const PROGRAMS: [&str; 2] = ["/api/v1/programs/", "/profiles/"];
/// Paths about the program that the body names as `program_id`.
const IN_BODY: [&str; 2] = ["/api/v1/actions", "/programs/release"];

/// What a request says of its subject.
#[derive(Debug, PartialEq)]
enum About {
    Shard(String),
    Job(String),
    Program(String),
    /// The program in the body, which is not read yet.
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

/// The shard of a request, and the request as it is to be passed on.
pub(super) async fn find(
    parts: &Parts,
    request: Request,
) -> Result<(&Shard, Request), Box<Response<Body>>> {
    let home = &parts.shards[0];
    // With one shard, all that can be wrong is its name.
    if parts.shards.len() == 1 && !request.headers().contains_key(SHARD_HEADER) {
        return Ok((home, request));
    }
    let about = about(&request);
    let (program, request) = match about {
        About::Daemon => return Ok((home, request)),
        About::Shard(name) => return Ok((named(parts, &name)?, request)),
        About::Job(job) => {
            let tenant = tenant(parts, request.headers()).await?;
            let job = ClientName::parse("job", &job).map_err(|e| refused(&e.into()))?;
            let names: Vec<_> = parts.shards.iter().map(|s| s.name.clone()).collect();
            let at = shard_of(&names, &tenant.inside(&job));
            return Ok((&parts.shards[at], request));
        }
        About::Program(program) => (Some(program), request),
        About::InBody => read_program(request).await?,
    };
    // Without a program the shard's own answer says what is missing.
    let Some(program) = program else {
        return Ok((home, request));
    };
    let tenant = tenant(parts, request.headers()).await?;
    let program = ClientName::parse("program_id", &program).map_err(|e| refused(&e.into()))?;
    Ok((of_program(parts, &tenant, &program).await?, request))
}

fn about(request: &Request) -> About {
    let path = request.uri().path();
    if AT_HOME.iter().any(|start| path.starts_with(start)) {
        return About::Daemon;
    }
    let header = |name| {
        let value = request.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    if let Some(shard) = header(SHARD_HEADER) {
        return About::Shard(shard);
    }
    if let Some(job) = header(JOB_HEADER) {
        return About::Job(job);
    }
    let segment = |start: &str| {
        let rest = path.strip_prefix(start)?.split('/').next()?;
        let decoded = percent_decode_str(rest).decode_utf8();
        decoded.ok().map(String::from)
    };
    if path == "/api/v1/programs" {
        let query = Query::<ParentQuery>::try_from_uri(request.uri()).ok();
        let parent = query.and_then(|query| query.0.parent);
        return parent.map_or(About::Daemon, About::Program);
    }
    if let Some(job) = segment("/api/v1/jobs/") {
        return About::Job(job);
    }
    if let Some(program) = PROGRAMS.iter().find_map(|start| segment(start)) {
        return About::Program(program);
    }
    if path == "/finish_session" {
        let query = Query::<SessionQuery>::try_from_uri(request.uri());
        let session = query.ok().and_then(|query| query.0.session_id);
        return session.map_or(About::Daemon, About::Program);
    }
    if IN_BODY.contains(&path) && request.method() == Method::POST {
        return About::InBody;
    }
    About::Daemon
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

/// The program that a body names, and the request with its body again.
async fn read_program(request: Request) -> Result<(Option<String>, Request), Box<Response<Body>>> {
    let (head, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, CONTROL_BYTES_MAX)
        .await
        .map_err(|_| {
            let message = format!("the body is cut off, or larger than {CONTROL_BYTES_MAX} bytes");
            Box::new(refuse(ErrorCode::BodyTooLarge, message))
        })?;
    let fields: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let program = match &fields["program_id"] {
        Value::String(program) => Some(program.clone()),
        Value::Number(program) => Some(program.to_string()),
        _ => None,
    };
    Ok((program, Request::from_parts(head, Body::from(body))))
}

/// The one shard that knows a program.
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
            let message = format!("no shard knows the program `{program}`");
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

    fn request(method: Method, uri: &str, headers: &[(&str, &str)]) -> About {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        about(&request.body(Body::empty()).expect("a request"))
    }

    #[test]
    fn a_request_says_what_it_is_about() {
        let get = |uri| request(Method::GET, uri, &[]);
        assert_eq!(get("/programs"), About::Daemon);
        assert_eq!(get("/api/v1/programs"), About::Daemon);
        assert_eq!(
            get("/api/v1/programs?limit=2&parent=a%2Fb"),
            About::Program("a/b".into())
        );
        assert_eq!(
            get("/api/v1/programs/a%2Fb/steps"),
            About::Program("a/b".into())
        );
        assert_eq!(get("/profiles/p"), About::Program("p".into()));
        assert_eq!(get("/api/v1/jobs/run-1"), About::Job("run-1".into()));
        assert_eq!(
            request(Method::POST, "/finish_session?session_id=s+1", &[]),
            About::Program("s 1".into())
        );
        assert_eq!(request(Method::POST, "/api/v1/actions", &[]), About::InBody);
        let job = [(JOB_HEADER, "run-1")];
        assert_eq!(
            request(Method::POST, "/api/v1/actions", &job),
            About::Job("run-1".into())
        );
        let both = [(JOB_HEADER, "run-1"), (SHARD_HEADER, "b")];
        assert_eq!(
            request(Method::POST, "/api/v1/actions", &both),
            About::Shard("b".into())
        );
        assert_eq!(request(Method::GET, "/api/v1/tokens", &both), About::Daemon);
    }
}
