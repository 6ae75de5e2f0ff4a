//! Sandboxes of programs, and their images.

use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::permissions::{IMAGES, RUN, VIEW};
use treadle_auth::{Caller, Principal};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::{Answer, Created};
use treadle_endpoints::{Endpoint, delete, get, post, put};
use treadle_http::{error_response, refuse};
use treadle_runs::sandboxes::{Host, Listed, SandboxApp, refused, state_name};
use treadle_sandbox::{OnExpiry, Sandbox, SandboxError, SandboxSpec, State as Life, Status};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

/// The error message if sandboxes are disabled.
const DISABLED: &str =
    "this daemon has no sandboxes; set sandboxes.enabled = true (docs/sandboxes.md)";
/// Most copies of a sandbox in one request.
const FORKS_MAX: u32 = 100;

pub(crate) fn endpoints() -> Vec<Endpoint<SandboxApp>> {
    let codes = [ErrorCode::SandboxesDisabled, ErrorCode::SandboxUnknown];
    let with_failure = [
        codes[0],
        codes[1],
        ErrorCode::SandboxFailed,
        ErrorCode::Unserved,
    ];
    vec![
        post("/api/v1/sandboxes", RUN, create)
            .summary("Creates a sandbox")
            .details(
                "Acknowledged once the sandbox is on record; commands wait until it is ready. It \
                 ends with its program, or at its timeout.",
            )
            .fails(&[
                ErrorCode::SandboxesDisabled,
                ErrorCode::Overloaded,
                ErrorCode::TenantBusy,
                ErrorCode::TenantLimit,
                ErrorCode::SandboxFailed,
                ErrorCode::Unserved,
            ]),
        get("/api/v1/sandboxes", VIEW, list)
            .summary("Sandboxes, oldest first")
            .fails(&codes[..1]),
        get("/api/v1/sandboxes/{sandbox}", VIEW, show)
            .summary("A sandbox")
            .fails(&codes),
        delete("/api/v1/sandboxes/{sandbox}", RUN, remove)
            .summary("Removes a sandbox with its processes and files")
            .fails(&codes),
        post("/api/v1/sandboxes/{sandbox}/pause", RUN, pause)
            .summary("Pauses a sandbox's processes; they keep their memory")
            .fails(&with_failure),
        post("/api/v1/sandboxes/{sandbox}/resume", RUN, resume)
            .summary("Resumes a sandbox's processes")
            .fails(&with_failure),
        post("/api/v1/sandboxes/{sandbox}/fork", RUN, fork)
            .summary("Creates sandboxes with copies of a sandbox's files")
            .fails(&[
                codes[0],
                codes[1],
                ErrorCode::SandboxFailed,
                ErrorCode::Overloaded,
                ErrorCode::TenantBusy,
                ErrorCode::TenantLimit,
                ErrorCode::Unserved,
            ]),
        get("/api/v1/images", VIEW, images)
            .summary("Images for sandboxes")
            .fails(&codes[..1]),
        put("/api/v1/images/{image}", IMAGES, import)
            .summary(
                "Imports an image from a folder, a tar archive or an OCI image layout on the \
                      daemon's machine",
            )
            .details(
                "The source must be below a folder of `sandboxes.image_folders` and not belong to \
                 the daemon. The image belongs to the caller's tenant unless it is `shared`. With \
                 several tenants this needs a token of the whole daemon.",
            )
            .fails(&[codes[0], ErrorCode::Unserved]),
        delete("/api/v1/images/{image}", IMAGES, remove_image)
            .summary("Removes an image that no sandbox uses")
            .details("With several tenants this needs a token of the whole daemon.")
            .fails(&[codes[0], ErrorCode::Unserved]),
    ]
}

/// The host of this daemon's sandboxes, or the refusal if sandboxes are disabled.
pub(crate) fn host(app: &SandboxApp) -> Result<&Arc<Host>, Response> {
    let host = app.host.as_ref();
    host.ok_or_else(|| refuse(ErrorCode::SandboxesDisabled, DISABLED))
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(crate) fn told(error: SandboxError) -> Response {
    error_response(&refused(&error))
}

pub(crate) fn own(app: &SandboxApp, caller: &Caller, id: &str) -> Result<Arc<Sandbox>, Response> {
    host(app)?
        .own(&caller.principal.tenant.tenant, id)
        .map_err(told)
}

/// A sandbox to be created.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct SandboxRequest {
    /// Its image or snapshot; default `system`, the programs of the daemon's machine.
    image: String,
    /// The program with which it ends.
    program_id: Option<String>,
    /// The RL run; default `default`.
    job: Option<String>,
    /// Environment variables of all its commands.
    env: BTreeMap<String, String>,
    /// Labels by which its owner can find it.
    labels: BTreeMap<String, String>,
    /// Time to live after it became ready, in seconds; default `sandboxes.ttl_s`.
    ttl_s: Option<u64>,
    /// What happens at the end of its life: `remove`, or `pause`.
    #[schema(value_type = String)]
    on_expiry: OnExpiry,
    /// Its memory limit; default `sandboxes.memory_bytes`.
    memory_bytes: Option<u64>,
}

/// A sandbox.
#[derive(Serialize, ToSchema)]
pub(crate) struct SandboxView {
    /// Its name.
    id: String,
    /// preparing, ready, paused, stopped, failed or removed.
    state: &'static str,
    /// Why it could not be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// Its image or snapshot.
    image: String,
    /// Its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    program_id: Option<String>,
    /// Its RL run.
    job: String,
    /// Labels by which its owner can find it.
    labels: BTreeMap<String, String>,
    /// When it was requested, in microseconds since 1970.
    created_at_us: u64,
    /// When its life ends, in microseconds since 1970; absent until it was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_us: Option<u64>,
    /// Memory in use, in bytes.
    memory_bytes: u64,
    /// Bytes written to disk, at the last measurement.
    disk_bytes: u64,
    /// Number of running commands.
    commands: usize,
    /// Its node; absent on the daemon's own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

impl From<Listed> for SandboxView {
    fn from(listed: Listed) -> Self {
        Self {
            node: listed.node,
            ..listed.status.into()
        }
    }
}

impl SandboxView {
    fn of(app: &SandboxApp, sandbox: &Sandbox) -> Self {
        Self {
            node: app.node.clone(),
            ..sandbox.status().into()
        }
    }
}

impl From<Status> for SandboxView {
    fn from(status: Status) -> Self {
        let state = state_name(&status.state);
        let cause = match status.state {
            Life::Failed(cause) => Some(cause),
            _ => None,
        };
        Self {
            id: status.id,
            state,
            cause,
            image: status.spec.image,
            program_id: status.spec.program,
            job: status.spec.job,
            labels: status.spec.labels,
            created_at_us: status.created_at_us,
            expires_at_us: status.expires_at_us,
            memory_bytes: status.memory_bytes,
            disk_bytes: status.disk_bytes,
            commands: status.commands,
            node: None,
        }
    }
}

async fn create(
    State(app): State<SandboxApp>,
    caller: Caller,
    Body(request): Body<SandboxRequest>,
) -> Result<Created<SandboxView>, Response> {
    let spec = SandboxSpec {
        job: request.job.unwrap_or_else(|| "default".to_owned()),
        program: request.program_id,
        labels: request.labels,
        image: request.image,
        env: request.env,
        ttl: request.ttl_s.map(Duration::from_secs),
        on_expiry: request.on_expiry,
        memory_bytes: request.memory_bytes,
        ..SandboxSpec::default()
    };
    let created = host(&app)?
        .create(&caller.principal.tenant.tenant, spec)
        .await;
    let created = created.map_err(|failure| error_response(&failure.into_refusal()))?;
    Ok(Created(SandboxView::of(&app, &created)))
}

/// Sandboxes.
#[derive(Serialize, ToSchema)]
struct SandboxList {
    /// Oldest first.
    sandboxes: Vec<SandboxView>,
}

async fn list(State(app): State<SandboxApp>, caller: Caller) -> Answer<SandboxList> {
    if app.nodes.is_none() {
        host(&app)?;
    }
    let all = app.list(&caller.principal.tenant.tenant).await;
    let sandboxes = all.into_iter().map(SandboxView::from).collect();
    Ok(Json(SandboxList { sandboxes }))
}

async fn show(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<SandboxView> {
    let sandbox = own(&app, &caller, &id)?;
    Ok(Json(SandboxView::of(&app, &sandbox)))
}

async fn remove(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<SandboxView> {
    let sandbox = own(&app, &caller, &id)?;
    host(&app)?.sandboxes.remove(&id).await;
    Ok(Json(SandboxView::of(&app, &sandbox)))
}

async fn pause(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<SandboxView> {
    let sandbox = own(&app, &caller, &id)?;
    sandbox.pause().await.map_err(told)?;
    Ok(Json(SandboxView::of(&app, &sandbox)))
}

async fn resume(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Answer<SandboxView> {
    let sandbox = own(&app, &caller, &id)?;
    sandbox.resume().await.map_err(told)?;
    Ok(Json(SandboxView::of(&app, &sandbox)))
}

/// Copies to be created.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ForkRequest {
    /// Number of copies, from 1 to 100; default 1.
    #[serde(default = "one")]
    count: u32,
}

fn one() -> u32 {
    1
}

async fn fork(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    Body(request): Body<ForkRequest>,
) -> Result<Created<SandboxList>, Response> {
    let parent = own(&app, &caller, &id)?;
    if !(1..=FORKS_MAX).contains(&request.count) {
        let message = format!("`count` is {}; send 1 to {FORKS_MAX}", request.count);
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let children = host(&app)?
        .sandboxes
        .fork(&parent, request.count as usize, |_| {})
        .await;
    let children = children.map_err(told)?.into_iter();
    let sandboxes = children
        .map(|child| SandboxView::of(&app, &child))
        .collect();
    Ok(Created(SandboxList { sandboxes }))
}

/// Images.
#[derive(Serialize, ToSchema)]
struct Images {
    /// Their names.
    images: Vec<String>,
}

async fn images(State(app): State<SandboxApp>, caller: Caller) -> Answer<Images> {
    let (nodes, tenant) = (app.nodes.as_ref(), caller.principal.tenant.tenant.name());
    let mut images = nodes.map_or_else(BTreeSet::new, |nodes| nodes.images_of(tenant));
    match host(&app) {
        Ok(host) => images.extend(host.sandboxes.images_of(tenant)),
        Err(refusal) if nodes.is_none() => return Err(refusal),
        Err(_) => {}
    }
    let images = images.into_iter().collect();
    Ok(Json(Images { images }))
}

/// Where an image comes from.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ImportRequest {
    /// A folder, a tar archive, or a folder with an OCI image layout, on the daemon's machine, below a
    /// folder of `sandboxes.image_folders`.
    path: String,
    /// Whether all tenants may use it; default only the caller's.
    #[serde(default)]
    shared: bool,
}

/// Importing and removing images affects machines that tenants share.
pub(crate) fn check_images(principal: &Principal) -> Result<(), Response> {
    if principal.is_alone() || principal.global {
        return Ok(());
    }
    let message = "images need a token of the whole daemon: there are several tenants, and \
                   machines are shared; ask an operator of the daemon";
    Err(refuse(ErrorCode::Forbidden, message))
}

async fn import(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(image): InPath<String>,
    Body(request): Body<ImportRequest>,
) -> Answer<Images> {
    let sandboxes = &host(&app)?.sandboxes;
    check_images(&caller.principal)?;
    let tenant = caller.principal.tenant.tenant.name();
    let owner = (!request.shared).then_some(tenant);
    let path = Path::new(&request.path);
    let imported = sandboxes.import_listed(&image, path, owner).await;
    imported.map_err(told)?;
    let images = sandboxes.images_of(tenant);
    Ok(Json(Images { images }))
}

async fn remove_image(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(image): InPath<String>,
) -> Answer<Images> {
    let sandboxes = &host(&app)?.sandboxes;
    check_images(&caller.principal)?;
    sandboxes.remove_image(&image).await.map_err(told)?;
    let images = sandboxes.images_of(caller.principal.tenant.tenant.name());
    Ok(Json(Images { images }))
}
