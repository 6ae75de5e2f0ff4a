//! One-off code execution for clients of `SandboxFusion`: each request has its own sandbox, which
//! ends with it. Requests are queued here because clients treat a refusal as a wrong answer.

mod languages;
mod run;
mod single;

use super::swerex::{Unprocessable, read_json};
use crate::sandboxes::host;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Json;
use languages::Known;
use run::RunContext;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_endpoints::arguments::{Query, Raw};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, post};
use treadle_runs::sandboxes::SandboxApp;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// The header with the request's RL run, as in generation requests.
const JOB_HEADER: &str = "x-treadle-job";
/// The default RL run of these requests, and their tool name.
const KIND: &str = "fusion";

pub(crate) fn endpoints() -> Vec<Endpoint<SandboxApp>> {
    vec![
        post("/run_code", RUN, run_code)
            .summary("Runs code in a new sandbox, for clients of SandboxFusion")
            .details(
                "Compiling and running are actions and use one core each. Faults that are not the \
                 code's, such as an unsupported language or a sandbox that could not be created, \
                 are a `SandboxError`.",
            )
            .takes::<FusionRequest>()
            .takes_command()
            .answers::<Unprocessable>(422, "The body is invalid.")
            .fails(&[ErrorCode::SandboxesDisabled]),
    ]
}

/// Query parameters.
#[derive(Deserialize, IntoParams)]
struct FusionQuery {
    /// The sandbox's image; default the machine's own programs.
    image: Option<String>,
    /// The RL run; default that of the header `x-treadle-job`.
    job: Option<String>,
}

/// Code to be run.
#[derive(Deserialize, ToSchema)]
struct FusionRequest {
    /// The code.
    code: String,
    /// Its language.
    language: String,
    /// Time limit of the compiler in seconds.
    #[serde(default = "ten")]
    compile_timeout: f64,
    /// Time limit of the program in seconds.
    #[serde(default = "ten")]
    run_timeout: f64,
    /// Memory limit of the program in MiB; none of its own unless above 0.
    #[serde(default, rename = "memory_limit_MB")]
    memory_limit_mb: i64,
    /// The program's standard input.
    #[serde(default)]
    stdin: Option<String>,
    /// Files beside it, in Base64.
    #[serde(default)]
    files: BTreeMap<String, Option<String>>,
    /// Files to return.
    #[serde(default)]
    fetch_files: Vec<String>,
}

fn ten() -> f64 {
    10.0
}

/// The result of a run.
#[derive(Default, Serialize, ToSchema)]
struct FusionAnswer {
    /// `Success`, `Failed` or `SandboxError`.
    status: &'static str,
    /// The cause of a fault that is not the code's.
    message: String,
    /// The compiler's result.
    compile_result: Option<FusionResult>,
    /// The program's result.
    run_result: Option<FusionResult>,
    /// Always null.
    executor_pod_name: Option<String>,
    /// Requested files that exist, in Base64.
    files: BTreeMap<String, String>,
}

/// The result of a compiler or a program.
#[derive(Serialize, ToSchema)]
struct FusionResult {
    /// `Finished`, `TimeLimitExceeded` or `Error`.
    status: &'static str,
    /// Run time in seconds.
    execution_time: Option<f64>,
    /// The exit code; the negated signal if one ended it.
    return_code: Option<i32>,
    /// Its standard output.
    stdout: Option<String>,
    /// Its standard error.
    stderr: Option<String>,
}

impl FusionAnswer {
    /// The response if the code could not be run for another reason than its own faults.
    fn failed(message: impl Into<String>) -> Self {
        Self {
            status: "SandboxError",
            message: message.into(),
            ..Self::default()
        }
    }
}

async fn run_code(
    State(app): State<SandboxApp>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<FusionQuery>,
    Raw(body): Raw,
) -> Answer<FusionAnswer> {
    let host = host(&app)?;
    {
        // The body is parsed again when the request runs: until then only one copy is in memory,
        // within the limits on bodies.
        let request: FusionRequest = read_json(&body)?;
        match languages::of(&request.language) {
            Known::Run(_) => {}
            Known::Refused => {
                let message = format!("treadle does not run `{}`", request.language);
                return Ok(Json(FusionAnswer::failed(message)));
            }
            Known::Unknown => {
                let message = format!("Input should be one of {}", languages::names());
                return Err(Unprocessable::of("enum", "language", message).into());
            }
        }
    }
    let header = headers.get(JOB_HEADER).and_then(|job| job.to_str().ok());
    let job = query.job.or_else(|| header.map(str::to_owned));
    let context = RunContext {
        tenant: caller.principal.tenant.tenant.clone(),
        image: query.image.unwrap_or_default(),
        job: job.unwrap_or_else(|| KIND.to_owned()),
    };
    let principal = &caller.principal;
    let turn = host
        .singles
        .turn(principal.tenant.tenant.name(), principal.tenants);
    let Some(_turn) = turn.await else {
        return Ok(Json(FusionAnswer::failed("treadle is shutting down")));
    };
    let request: FusionRequest = read_json(&body)?;
    let Known::Run(language) = languages::of(&request.language) else {
        return Ok(Json(FusionAnswer::failed("the language is unknown")));
    };
    Ok(Json(run::run(host, &context, language, request).await))
}
