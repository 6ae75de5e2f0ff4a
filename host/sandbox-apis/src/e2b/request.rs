//! What handlers of E2B's control plane share: the sandbox that a request names, its body, and
//! sandboxes that must be running.

use super::errors::{refuse, told};
use super::view;
use axum::response::Response;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::Caller;
use treadle_endpoints::arguments::parse;
use treadle_runs::sandboxes::{Host, SandboxApp, refused};
use treadle_sandbox::{Sandbox, SandboxError, State as Life};
use treadle_wire::{ErrorBody, ErrorCode};

/// The error message if sandboxes are disabled.
const DISABLED: &str =
    "this daemon has no sandboxes; set sandboxes.enabled = true (docs/sandboxes.md)";
/// The longest that a sandbox may live, in seconds: a year.
const TTL_S_MAX: u64 = 31_536_000;

/// Reads a body that may be absent.
pub(super) fn read<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Response> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    parse(body).map_err(|error| told(&error))
}

/// A time to live from a request.
pub(super) fn seconds(field: &str, seconds: u64) -> Result<Duration, Response> {
    if seconds > TTL_S_MAX {
        let message = format!("`{field}` is {seconds}; send at most {TTL_S_MAX} seconds");
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    Ok(Duration::from_secs(seconds))
}

/// The host of this daemon's sandboxes, or the refusal if sandboxes are disabled.
pub(super) fn host(app: &SandboxApp) -> Result<&Arc<Host>, Response> {
    let host = app.host.as_ref();
    host.ok_or_else(|| told(&ErrorBody::new(ErrorCode::SandboxesDisabled, DISABLED)))
}

/// A tenant's sandbox, if it exists for E2B's clients.
pub(super) fn own(app: &SandboxApp, caller: &Caller, id: &str) -> Result<Arc<Sandbox>, Response> {
    let found = host(app)?
        .own(&caller.principal.tenant.tenant, id)
        .map_err(|error| told(&refused(&error)))?;
    if view::is_there(&found.status()) {
        return Ok(found);
    }
    Err(refuse(
        ErrorCode::SandboxUnknown,
        format!("no sandbox {id}: it could not be created"),
    ))
}

/// Refuses a request to pause without keeping memory.
pub(super) fn without_memory(field: &str) -> Response {
    let message = format!(
        "`{field}` is false, but treadle's paused sandboxes keep their memory; leave it out"
    );
    refuse(ErrorCode::Unserved, message)
}

/// The refusal for a failed operation on a sandbox.
pub(super) fn told_of(error: &SandboxError) -> Response {
    told(&refused(error))
}

/// Whether a sandbox is paused.
pub(super) fn is_paused(sandbox: &Sandbox) -> bool {
    sandbox.status().state == Life::Paused
}

/// Resumes a paused sandbox, with this time to live.
pub(super) async fn go_on(
    sandbox: &Arc<Sandbox>,
    ttl: Option<Duration>,
) -> Result<(), SandboxError> {
    // Extends its life first: a sandbox past its end would be paused again.
    sandbox.live_for(ttl.unwrap_or_else(|| view::ttl(&sandbox.status())))?;
    sandbox.resume().await
}

/// Waits until a sandbox is ready; one that can't be created is removed.
pub(super) async fn ready(host: &Host, sandbox: &Arc<Sandbox>) -> Result<(), SandboxError> {
    let resumed = sandbox.resume().await;
    if resumed.is_err() {
        host.sandboxes.remove(sandbox.id()).await;
    }
    resumed
}
