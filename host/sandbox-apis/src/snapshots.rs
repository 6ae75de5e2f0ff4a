//! Snapshots of sandboxes' files, from which sandboxes are created.

use crate::sandboxes::{host, own, told};
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::{Answer, Created};
use treadle_endpoints::{Endpoint, delete, get, post};
use treadle_runs::sandboxes::{ListedSnapshot, SandboxApp};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(crate) fn endpoints() -> Vec<Endpoint<SandboxApp>> {
    let disabled = [ErrorCode::SandboxesDisabled];
    vec![
        post("/api/v1/sandboxes/{sandbox}/snapshot", RUN, make)
            .summary("Takes a snapshot of a sandbox's files")
            .details(
                "Processes are paused meanwhile and are not part of the snapshot. Use the snapshot \
                 as the `image` of a new sandbox. It remains until it is removed, even after its \
                 sandbox ends. A snapshot with the same name is replaced.",
            )
            .fails(&[
                ErrorCode::SandboxesDisabled,
                ErrorCode::SandboxUnknown,
                ErrorCode::SandboxFailed,
                ErrorCode::Overloaded,
                ErrorCode::TenantLimit,
            ]),
        get("/api/v1/snapshots", VIEW, list)
            .summary("Snapshots of sandboxes, oldest first")
            .fails(&disabled),
        delete("/api/v1/snapshots/{snapshot}", RUN, remove)
            .summary("Removes a snapshot, by its id or name; sandboxes created from it remain")
            .fails(&disabled)
            .fails(&[ErrorCode::ImageUnknown]),
    ]
}

/// A snapshot to be created.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct SnapshotRequest {
    /// An optional name beside its id: letters, digits and `-_.:`.
    name: Option<String>,
}

/// A snapshot.
#[derive(Serialize, ToSchema)]
struct SnapshotView {
    /// Its id.
    id: String,
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The sandbox that it was taken of.
    sandbox: String,
    /// The image of that sandbox.
    image: String,
    /// The RL run of that sandbox.
    job: String,
    /// When it was created, in microseconds since 1970.
    created_at_us: u64,
    /// When a sandbox was last created from it, in microseconds since 1970; initially its own
    /// creation.
    used_at_us: u64,
    /// Disk space that it uses, in bytes.
    disk_bytes: u64,
    /// Its node; absent on the daemon's own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

impl From<ListedSnapshot> for SnapshotView {
    fn from(ListedSnapshot { snapshot, node }: ListedSnapshot) -> Self {
        Self {
            id: snapshot.id,
            name: snapshot.name,
            sandbox: snapshot.sandbox,
            image: snapshot.image,
            job: snapshot.job,
            created_at_us: snapshot.created_at_us,
            used_at_us: snapshot.used_at_us,
            disk_bytes: snapshot.disk_bytes,
            node,
        }
    }
}

async fn make(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Body(request): Body<SnapshotRequest>,
) -> Result<Created<SnapshotView>, Response> {
    let sandbox = own(&app, &caller, &id)?;
    let sandboxes = &host(&app)?.sandboxes;
    let snapshot = sandboxes.snapshot(&sandbox, request.name).await;
    let snapshot = snapshot.map_err(told)?;
    let node = app.node.clone();
    Ok(Created(ListedSnapshot { snapshot, node }.into()))
}

/// Snapshots.
#[derive(Serialize, ToSchema)]
struct SnapshotList {
    /// Oldest first.
    snapshots: Vec<SnapshotView>,
}

async fn list(State(app): State<SandboxApp>, caller: Caller) -> Answer<SnapshotList> {
    if app.nodes.is_none() {
        host(&app)?;
    }
    let all = app.snapshots(&caller.principal.tenant.tenant).await;
    let snapshots = all.into_iter().map(SnapshotView::from).collect();
    Ok(Json(SnapshotList { snapshots }))
}

async fn remove(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(snapshot): InPath<String>,
) -> Answer<SnapshotList> {
    let tenant = &caller.principal.tenant.tenant;
    let sandboxes = &host(&app)?.sandboxes;
    let removed = sandboxes.remove_snapshot(tenant.name(), &snapshot).await;
    removed.map_err(told)?;
    list(State(app), caller).await
}
