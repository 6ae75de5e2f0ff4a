//! Shells that keep their state from command to command.

use super::errors::{ENDED, Problem, SESSION_EXISTS, SESSION_UNKNOWN, TIMEOUT};
use super::text::{of_terminal, repr};
use super::{JsonBody, KIND, observe, own, seconds};
use axum::extract::State;
use axum::response::Json;
use observe::{SwerexBash, SwerexObservation};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use treadle_auth::Caller;
use treadle_endpoints::arguments::InPath;
use treadle_endpoints::signature::Answer;
use treadle_runs::sandboxes::{
    Became, CommandAction, NoShell, PROMPT, SHELLS_MAX, SandboxApp, Task,
};
use treadle_sandbox::End;
use utoipa::ToSchema;

/// Minimum start timeout of a shell. Clients send one second, which is too short on a busy machine.
const START_MIN: Duration = Duration::from_secs(10);
/// Longest name of a session.
const NAME_BYTES_MAX: usize = 256;

/// The kind of session.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionType {
    /// A bash.
    #[default]
    Bash,
}

/// A shell to be started.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexCreateSession {
    /// `bash`.
    #[serde(rename = "session_type")]
    _kind: SessionType,
    /// Its name.
    #[serde(default = "default_name")]
    session: String,
    /// Files that it sources first.
    #[serde(default)]
    startup_source: Vec<String>,
    /// Start timeout in seconds; at least 10.
    #[serde(default)]
    startup_timeout: Option<f64>,
}

/// A shell to be ended.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexCloseSession {
    /// Its name.
    #[serde(default = "default_name")]
    session: String,
}

pub(super) fn default_name() -> String {
    "default".to_owned()
}

/// A shell that was started.
#[derive(Serialize, ToSchema)]
pub(super) struct SwerexSession {
    /// Its output during the start.
    output: String,
    /// `bash`.
    session_type: SessionType,
}

/// A shell that was ended.
#[derive(Serialize, ToSchema)]
pub(super) struct SwerexClosed {
    /// `bash`.
    session_type: SessionType,
}

/// A command for a shell.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "action_type", rename_all = "snake_case")]
pub(super) enum SwerexAction {
    /// Run a command.
    Bash(SwerexBash),
    /// Interrupt the running command.
    BashInterrupt(SwerexInterrupt),
}

/// An interrupt.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexInterrupt {
    /// The shell's name.
    #[serde(default = "default_name")]
    session: String,
    /// Timeout of each attempt in seconds; at least half a second.
    #[serde(default)]
    timeout: Option<f64>,
    /// Number of attempts before the command is killed.
    #[serde(default = "three")]
    n_retry: u32,
}

fn three() -> u32 {
    3
}

pub(super) async fn create(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    JsonBody(request): JsonBody<SwerexCreateSession>,
) -> Answer<SwerexSession> {
    let (host, sandbox) = own(&app, &caller, &id)?;
    let name = &request.session;
    if name.len() > NAME_BYTES_MAX {
        let message = format!("`session` has more than {NAME_BYTES_MAX} bytes");
        return Err(Problem::new(super::errors::VALUE, message).into());
    }
    if name.contains(char::is_control) {
        let message = "`session` has a control character; leave it out";
        return Err(Problem::new(super::errors::VALUE, message.to_owned()).into());
    }
    let max = seconds("startup_timeout", request.startup_timeout)?;
    let max = max.unwrap_or_default().max(START_MIN);
    let sources = request.startup_source.iter();
    let first: Vec<_> = sources.map(|path| format!("source {path}")).collect();
    let first = first.join("\n");
    observe::check_text(&first)?;
    let task = Task {
        kind: KIND,
        what: "create_session".to_owned(),
        run_max: Some(max),
    };
    let held = CommandAction::wait(host, &sandbox, &task)
        .await
        .map_err(Problem::from)?;
    let became = host.shells.start(&sandbox, name, &first, max).await;
    let end = match &became {
        Ok(Became::Gone(_)) | Err(_) => End::Gone,
        Ok(_) => End::Exited(0),
    };
    held.end(end, false, Vec::new());
    match became {
        Ok(Became::Ended(output, _)) => Ok(Json(SwerexSession {
            output: of_terminal(&output),
            session_type: SessionType::Bash,
        })),
        Ok(Became::Gone(output)) => Err(ended(&output).into()),
        Ok(_) => {
            let message = format!("the shell was not ready within {} s", max.as_secs());
            Err(Problem::new(TIMEOUT, message).into())
        }
        Err(NoShell::Exists) => {
            let message = format!("session {name} already exists");
            Err(Problem::new(SESSION_EXISTS, message).into())
        }
        Err(NoShell::Full) => {
            let message =
                format!("session limit of the sandbox reached ({SHELLS_MAX}); close some");
            Err(Problem::plain(message).into())
        }
        Err(NoShell::Failed(error)) => Err(Problem::from(error).into()),
    }
}

pub(super) fn ended(output: &[u8]) -> Problem {
    let output = of_terminal(output);
    Problem::new(
        ENDED,
        format!("the shell has ended; it wrote {}", repr(&output)),
    )
}

pub(super) fn unknown(session: &str) -> Problem {
    let message = format!("session {} does not exist", repr(session));
    Problem::new(SESSION_UNKNOWN, message)
}

pub(super) async fn close(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    JsonBody(request): JsonBody<SwerexCloseSession>,
) -> Answer<SwerexClosed> {
    let (host, sandbox) = own(&app, &caller, &id)?;
    if !host.shells.close(sandbox.id(), &request.session).await {
        return Err(unknown(&request.session).into());
    }
    Ok(Json(SwerexClosed {
        session_type: SessionType::Bash,
    }))
}

pub(super) async fn run(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    JsonBody(action): JsonBody<SwerexAction>,
) -> Answer<SwerexObservation> {
    let (host, sandbox) = own(&app, &caller, &id)?;
    let interrupt = match action {
        SwerexAction::Bash(bash) => {
            let observed = observe::run(host, &sandbox, &bash).await?;
            return Ok(Json(observed));
        }
        SwerexAction::BashInterrupt(interrupt) => interrupt,
    };
    let shell = host.shells.get(sandbox.id(), &interrupt.session);
    let shell = shell.ok_or_else(|| unknown(&interrupt.session))?;
    let each = seconds("timeout", interrupt.timeout)?.unwrap_or_default();
    sandbox.resume().await.map_err(Problem::from)?;
    let became = shell.interrupt(interrupt.n_retry, each).await;
    match became.map_err(|error| Problem::plain(error.to_string()))? {
        Became::Ended(output, _) | Became::Matched(output, _) => {
            let output = of_terminal(&output).trim().to_owned();
            Ok(Json(SwerexObservation::new(output, Some(0), PROMPT)))
        }
        Became::Gone(output) => Err(ended(&output).into()),
        Became::Late => Err(Problem::new(TIMEOUT, "Failed to interrupt session").into()),
    }
}
