//! Code that is run once, for clients of `SandboxFusion`: each request has a sandbox of its own,
//! which is gone with it. Requests wait for their turn here, as clients take a refusal for a wrong
//! answer.

mod languages;
mod run;
mod single;

use super::super::endpoint::{Endpoint, post};
use super::super::sandboxes::host;
use super::super::signature::Answer;
use super::swerex::{Unprocessable, read_json};
use crate::rest::arguments::{Query, Raw};
use crate::sandboxes::SandboxApp;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Json;
use languages::Known;
use run::Given;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// The RL run that a request is of, as in requests for generation.
const JOB_HEADER: &str = "x-treadle-job";
/// The RL run of requests that name none, and the tool that they are.
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

/// What a client may add to its URL.
#[derive(Deserialize, IntoParams)]
struct FusionQuery {
    /// What the sandbox is made of; the machine's programs without it.
    image: Option<String>,
    /// The RL run; that of the header `x-treadle-job` without it.
    job: Option<String>,
}

/// Code to be run.
#[derive(Deserialize, ToSchema)]
struct FusionRequest {
    /// The code.
    code: String,
    /// Its language.
    language: String,
    /// After so many seconds compiling is ended.
    #[serde(default = "ten")]
    compile_timeout: f64,
    /// After so many seconds the program is ended.
    #[serde(default = "ten")]
    run_timeout: f64,
    /// Memory of the program in MiB; without a bound of its own if it is not above 0.
    #[serde(default, rename = "memory_limit_MB")]
    memory_limit_mb: i64,
    /// What the program reads.
    #[serde(default)]
    stdin: Option<String>,
    /// Files beside it, in Base64.
    #[serde(default)]
    files: BTreeMap<String, Option<String>>,
    /// Files that the client wants to have.
    #[serde(default)]
    fetch_files: Vec<String>,
}

fn ten() -> f64 {
    10.0
}

/// What became of it.
#[derive(Default, Serialize, ToSchema)]
struct FusionAnswer {
    /// `Success`, `Failed` or `SandboxError`.
    status: &'static str,
    /// Why, where that is not the code's fault.
    message: String,
    /// What the compiler did.
    compile_result: Option<FusionResult>,
    /// What the program did.
    run_result: Option<FusionResult>,
    /// Nothing.
    executor_pod_name: Option<String>,
    /// Files that were asked for and are there, in Base64.
    files: BTreeMap<String, String>,
}

/// What a compiler or a program did.
#[derive(Serialize, ToSchema)]
struct FusionResult {
    /// `Finished`, `TimeLimitExceeded` or `Error`.
    status: &'static str,
    /// Seconds.
    execution_time: Option<f64>,
    /// The exit code; below 0 the signal that ended it.
    return_code: Option<i32>,
    /// Its output.
    stdout: Option<String>,
    /// What it told of errors.
    stderr: Option<String>,
}

impl FusionAnswer {
    /// It did not come to run, by no fault of the code.
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
        // It is read again at its turn: until then it is kept once, within the bounds on bodies.
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
    let given = Given {
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
    Ok(Json(run::run(host, &given, language, request).await))
}
