//! E2B's snapshots: templates of one tenant.

use super::errors::refuse;
use super::listing::{Part, paged};
use super::request::{host, own, read, told_of};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_endpoints::arguments::{InPath, Query, Raw};
use treadle_endpoints::signature::Created;
use treadle_runs::sandboxes::SandboxApp;
use treadle_sandbox::Snapshot;
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// A snapshot to be created.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct NewSnapshot {
    /// A name for it. An older snapshot with this name loses it.
    name: Option<String>,
    /// Must not be true: snapshots don't include processes.
    memory: Option<bool>,
}

/// A snapshot.
#[derive(Serialize, ToSchema)]
pub(super) struct E2bSnapshot {
    /// The `templateID` for creating sandboxes from it.
    #[serde(rename = "snapshotID")]
    snapshot_id: String,
    /// Its name, if it has one.
    names: Vec<String>,
}

impl From<Snapshot> for E2bSnapshot {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            snapshot_id: snapshot.id,
            names: snapshot.name.into_iter().collect(),
        }
    }
}

pub(super) async fn make(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Raw(body): Raw,
) -> Result<Created<E2bSnapshot>, Response> {
    let sandbox = own(&app, &caller, &id)?;
    let request: NewSnapshot = read(&body)?;
    if request.memory == Some(true) {
        let message = "`memory` is true, but treadle's snapshots contain only files; leave it out";
        return Err(refuse(ErrorCode::Unserved, message));
    }
    let made = host(&app)?.sandboxes.snapshot(&sandbox, request.name).await;
    Ok(Created(made.map_err(|error| told_of(&error))?.into()))
}

/// Filters and paging of snapshots.
#[derive(Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SnapshotsQuery {
    /// Only those of this sandbox.
    #[serde(rename = "sandboxID")]
    sandbox_id: Option<String>,
    /// Only the one with this name.
    name: Option<String>,
    /// Snapshots per page; default and maximum 100.
    limit: Option<usize>,
    /// The header `x-next-token` of the previous page.
    next_token: Option<String>,
}

pub(super) async fn list(
    State(app): State<SandboxApp>,
    caller: Caller,
    Query(query): Query<SnapshotsQuery>,
) -> Result<Response, Response> {
    if app.nodes.is_none() {
        host(&app)?;
    }
    let all = app.snapshots(&caller.principal.tenant.tenant).await;
    let mut all: Vec<Snapshot> = all.into_iter().map(|listed| listed.snapshot).collect();
    let wanted = |asked: &Option<String>, own: Option<&str>| {
        asked.as_deref().is_none_or(|asked| own == Some(asked))
    };
    all.retain(|snapshot| {
        wanted(&query.sandbox_id, Some(&snapshot.sandbox))
            && wanted(&query.name, snapshot.name.as_deref())
    });
    all.reverse();
    let place = |snapshot: &Snapshot| (snapshot.created_at_us, snapshot.id.clone());
    let part = Part {
        token: query.next_token.as_deref(),
        limit: query.limit,
    };
    Ok(paged(all, place, false, part, E2bSnapshot::from))
}

/// Clients may only remove snapshots: the other templates are the operator's images.
pub(super) async fn remove(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(snapshot): InPath<String>,
) -> Result<Response, Response> {
    let tenant = caller.principal.tenant.tenant.name();
    let removed = host(&app)?
        .sandboxes
        .remove_snapshot(tenant, &snapshot)
        .await;
    removed.map_err(|error| told_of(&error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
