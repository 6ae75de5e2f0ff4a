//! Lifecycle of a sandbox for E2B's clients: connecting, pausing, resuming, forking.

use super::errors::{refuse, status_of};
use super::keys;
use super::request::{go_on, host, is_paused, own, read, ready, seconds, told_of, without_memory};
use super::view::{self, E2bSandbox};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use treadle_auth::{Caller, now_us};
use treadle_endpoints::arguments::{InPath, Raw};
use treadle_endpoints::signature::Created;
use treadle_runs::sandboxes::{SandboxApp, refused};
use treadle_sandbox::{Sandbox, SandboxError};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// For how long a paused sandbox is kept.
const PAUSED_MAX: Duration = Duration::from_hours(30 * 24);
/// Default time to live of a copy.
const FORK_TTL: Duration = Duration::from_secs(15);
/// Most copies in one request.
const FORKS_MAX: usize = 100;

/// The time to live of a sandbox.
#[derive(Default, Deserialize, ToSchema)]
pub(super) struct Lease {
    /// Seconds from now on.
    timeout: Option<u64>,
    /// Must not be false: paused sandboxes keep their memory.
    memory: Option<bool>,
}

/// The minimum time to live of a sandbox.
#[derive(Default, Deserialize, ToSchema)]
pub(super) struct Refresh {
    /// Seconds from now on.
    duration: Option<u64>,
}

impl Lease {
    /// The time to live in a request, if it has one.
    fn ttl_of(body: &[u8]) -> Result<Option<Duration>, Response> {
        let lease: Self = read(body)?;
        if lease.memory == Some(false) {
            return Err(without_memory("memory"));
        }
        let timeout = lease.timeout.map(|timeout| seconds("timeout", timeout));
        timeout.transpose()
    }
}

/// Extends its life to at least `ttl` from now.
fn extend(sandbox: &Sandbox, ttl: Duration) -> Result<(), Response> {
    let end_us = now_us().saturating_add(ttl.as_micros() as u64);
    if view::end_us(&sandbox.status()) < end_us {
        sandbox.live_for(ttl).map_err(|error| told_of(&error))?;
    }
    Ok(())
}

pub(super) async fn connect(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Response, Response> {
    let sandbox = own(&app, &caller, &id)?;
    let ttl = Lease::ttl_of(&body)?;
    if is_paused(&sandbox) {
        go_on(&sandbox, ttl)
            .await
            .map_err(|error| told_of(&error))?;
        return Ok(Created(E2bSandbox::of(&sandbox)).into_response());
    }
    if let Some(ttl) = ttl {
        extend(&sandbox, ttl)?;
    }
    Ok(Json(E2bSandbox::of(&sandbox)).into_response())
}

pub(super) async fn set_timeout(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Response, Response> {
    let sandbox = own(&app, &caller, &id)?;
    let ttl = Lease::ttl_of(&body)?.ok_or_else(|| {
        refuse(
            ErrorCode::InvalidField,
            "`timeout` is missing; send a number of seconds",
        )
    })?;
    if is_paused(&sandbox) {
        // Old clients resume it after this.
        return Err(refuse(
            ErrorCode::SandboxUnknown,
            format!("the sandbox {id} is paused; resume it first"),
        ));
    }
    sandbox.live_for(ttl).map_err(|error| told_of(&error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn refresh(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Response, Response> {
    let sandbox = own(&app, &caller, &id)?;
    let refresh: Refresh = read(&body)?;
    let ttl = refresh
        .duration
        .map(|duration| seconds("duration", duration))
        .transpose()?;
    extend(
        &sandbox,
        ttl.unwrap_or_else(|| view::ttl(&sandbox.status())),
    )?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn pause(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Response, Response> {
    let sandbox = own(&app, &caller, &id)?;
    Lease::ttl_of(&body)?;
    if is_paused(&sandbox) {
        return Err(refuse(
            ErrorCode::SandboxState,
            format!("the sandbox {id} is already paused"),
        ));
    }
    // The processes of a sandbox from an earlier daemon have ended.
    sandbox.resume().await.map_err(|error| told_of(&error))?;
    sandbox.pause().await.map_err(|error| told_of(&error))?;
    extend(&sandbox, PAUSED_MAX)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn resume(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Created<E2bSandbox>, Response> {
    let sandbox = own(&app, &caller, &id)?;
    let ttl = Lease::ttl_of(&body)?;
    if !is_paused(&sandbox) {
        return Err(refuse(
            ErrorCode::SandboxState,
            format!("the sandbox {id} is already running"),
        ));
    }
    go_on(&sandbox, ttl)
        .await
        .map_err(|error| told_of(&error))?;
    Ok(Created(E2bSandbox::of(&sandbox)))
}

/// Number of copies, and their time to live.
#[derive(Default, Deserialize, ToSchema)]
pub(super) struct Forking {
    /// Number of copies, from 1 to 100; default 1.
    count: Option<usize>,
    /// Time to live in seconds; default 15.
    timeout: Option<u64>,
}

/// A copy, or the error.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum E2bFork {
    /// A copy.
    Sandbox(E2bSandbox),
    /// The error.
    Error(NoFork),
}

/// Why a copy could not be created.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct NoFork {
    /// An HTTP status.
    code: u16,
    /// What went wrong.
    message: String,
}

impl NoFork {
    fn of(error: &SandboxError) -> Self {
        let refusal = refused(error);
        Self {
            code: status_of(refusal.code),
            message: refusal.message,
        }
    }
}

pub(super) async fn fork(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Created<Vec<E2bFork>>, Response> {
    let host = host(&app)?;
    let parent = own(&app, &caller, &id)?;
    let forking: Forking = read(&body)?;
    let count = forking.count.unwrap_or(1);
    if !(1..=FORKS_MAX).contains(&count) {
        let message = format!("`count` is {count}; send 1 to {FORKS_MAX}");
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let ttl = forking.timeout.map(|timeout| seconds("timeout", timeout));
    let ttl = ttl.transpose()?.unwrap_or(FORK_TTL);
    if is_paused(&parent) {
        return Err(refuse(
            ErrorCode::SandboxState,
            format!("the sandbox {id} is paused; resume it first"),
        ));
    }
    let forks = host
        .sandboxes
        .fork_up_to(&parent, count, |spec| {
            keys::forget(&mut spec.labels);
            spec.ttl = Some(ttl);
        })
        .await
        .map_err(|error| told_of(&error))?;
    let mut made = Vec::with_capacity(count);
    for child in &forks.made {
        made.push(match ready(host, child).await {
            Ok(()) => E2bFork::Sandbox(E2bSandbox::of(child)),
            Err(error) => E2bFork::Error(NoFork::of(&error)),
        });
    }
    if let Some(error) = &forks.missing {
        let missing = NoFork::of(error);
        made.resize_with(count, || E2bFork::Error(missing.clone()));
    }
    Ok(Created(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_copy_has_its_own_error() {
        for (error, code) in [
            (SandboxError::Full(8), 429),
            (SandboxError::Gone, 500),
            (SandboxError::Unsupported("pods".to_owned()), 501),
        ] {
            let message = error.to_string();
            assert_eq!(NoFork::of(&error), NoFork { code, message });
        }
    }
}
