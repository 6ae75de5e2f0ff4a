//! Sandboxes for clients of SWE-ReX: each is a separate server below `/swerex/{sandbox}`, so that a
//! client only changes its URL.

mod errors;
mod execute;
mod files;
mod json_body;
mod observe;
mod sessions;
mod text;
mod unzip;
mod upload;

pub(super) use json_body::{Unprocessable, read_json};

use crate::sandboxes::host;
use axum::extract::State;
use axum::http::Method;
use axum::response::Json;
use errors::{Problem, SwerexFailed};
use json_body::JsonBody;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_endpoints::arguments::InPath;
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{Endpoint, get, post, relayed};
use treadle_runs::sandboxes::{Host, SandboxApp};
use treadle_sandbox::{Sandbox, State as Life, UserIds};
use utoipa::ToSchema;

/// The tool name of these commands in lists of actions.
const KIND: &str = "swerex";
/// Largest part of each output that is returned, in bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Longest timeout.
const WAIT_MAX: Duration = Duration::from_hours(24);
/// Permissions of uploaded files.
const MODE: u32 = 0o644;
/// User and group of uploaded files.
const ROOT: UserIds = UserIds::ROOT;
/// Where relative paths begin.
const HOME: &str = "/root";

pub(crate) fn endpoints() -> Vec<Endpoint<SandboxApp>> {
    let raises = |endpoint: Endpoint<SandboxApp>| {
        endpoint.answers::<SwerexFailed>(511, "An exception that the client raises.")
    };
    let commands = [
        post("/swerex/{sandbox}/create_session", RUN, sessions::create).summary("Starts a shell"),
        post("/swerex/{sandbox}/run_in_session", RUN, sessions::run)
            .summary("Runs a command in a shell, or interrupts the running one")
            .details(
                "The command is an action and uses cores while it runs. After `timeout` it \
                 continues in the background until it is interrupted.",
            ),
        post("/swerex/{sandbox}/close_session", RUN, sessions::close)
            .summary("Ends a shell and all its processes"),
        post("/swerex/{sandbox}/execute", RUN, execute::execute)
            .summary("Runs a command outside of shells")
            .details("The command is an action and uses cores while it runs."),
        post("/swerex/{sandbox}/read_file", RUN, files::read).summary("Reads a text file"),
        post("/swerex/{sandbox}/write_file", RUN, files::write)
            .summary("Writes a text file and creates its folders"),
    ];
    let upload = relayed(
        Some(Method::POST),
        "/swerex/{sandbox}/upload",
        RUN,
        upload::upload,
    );
    let mut all: Vec<_> = commands.into_iter().map(Endpoint::takes_command).collect();
    all.push(
        upload
            .summary("Uploads a file, or a folder as a zip archive")
            .details("A form with `file`, `target_path` and `unzip`, which is `true` or `false`.")
            .answers::<Empty>(200, "Uploaded.")
            .around(|_, handler| handler.layer(axum::extract::DefaultBodyLimit::disable())),
    );
    all.push(
        post("/swerex/{sandbox}/close", RUN, close).summary("Ends all shells; the sandbox remains"),
    );
    let mut all: Vec<_> = all.into_iter().map(raises).collect();
    all.insert(
        0,
        get("/swerex/{sandbox}/is_alive", RUN, is_alive)
            .summary("Whether a sandbox accepts commands, for clients of SWE-ReX"),
    );
    all
}

/// An empty object.
#[derive(Serialize, ToSchema)]
#[schema(title = "Empty")]
struct Empty {}

/// Whether a sandbox accepts commands.
#[derive(Serialize, ToSchema)]
struct Alive {
    /// True if it does.
    is_alive: bool,
    /// Why it does not; else empty.
    message: String,
}

/// A caller's sandbox.
fn own<'a>(
    app: &'a SandboxApp,
    caller: &Caller,
    id: &str,
) -> Result<(&'a Arc<Host>, Arc<Sandbox>), Problem> {
    let Some(host) = &app.host else {
        let message =
            "this daemon has no sandboxes; set sandboxes.enabled = true (docs/sandboxes.md)";
        return Err(Problem::plain(message));
    };
    let sandbox = host.own(&caller.principal.tenant.tenant, id)?;
    Ok((host, sandbox))
}

async fn is_alive(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<Alive> {
    let host = host(&app)?;
    let message = match host.own(&caller.principal.tenant.tenant, &id) {
        Err(error) => error.to_string(),
        Ok(sandbox) => match sandbox.status().state {
            Life::Ready | Life::Paused | Life::Stopped => String::new(),
            Life::Preparing => "the sandbox is being prepared".to_owned(),
            Life::Failed(cause) => format!("the sandbox could not be prepared: {cause}"),
            Life::Removed => format!("no sandbox {id}"),
        },
    };
    Ok(Json(Alive {
        is_alive: message.is_empty(),
        message,
    }))
}

async fn close(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<Empty> {
    let (host, sandbox) = own(&app, &caller, &id)?;
    host.shells.close_all(sandbox.id()).await;
    Ok(Json(Empty {}))
}

/// A time in seconds, as clients send it.
fn seconds(field: &str, seconds: Option<f64>) -> Result<Option<Duration>, Problem> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    if seconds.is_nan() || seconds < 0.0 {
        let message = format!("`{field}` is {seconds}; send a number of seconds, or null");
        return Err(Problem::new(errors::VALUE, message));
    }
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX);
    Ok(Some(time.min(WAIT_MAX)))
}

/// The absolute path, relative to the folder in which commands start.
fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    format!("{HOME}/{path}")
}
