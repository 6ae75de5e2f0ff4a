//! Policies: upload, check, list, logs.

use super::Endpoint;
use super::policy_views::{CheckFailure, CheckReport, PolicyLogLine, VersionFigures};
use super::upload::upload;
use super::{not_recorded, refuse, stopped};
use crate::app::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::permissions::{PLUGINS, VIEW};
use treadle_auth::{Caller, Change};
use treadle_endpoints::arguments::{InPath, Query};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{get, post};
use treadle_http::error_response;
use treadle_model::World;
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_registry::{RegistryError, bundled, check_share, unstored};
use treadle_store::{PluginHead, StoreError};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// How often a followed log is polled.
const LOG_PAUSE: Duration = Duration::from_millis(250);

pub(super) fn endpoints() -> Vec<Endpoint> {
    let invalid = &[ErrorCode::PluginInvalid, ErrorCode::MissingField];
    vec![
        get("/api/v1/plugins", VIEW, list)
            .summary("Policies that can be bound")
            .details(
                "Returns the policies of the caller's tenant and the bundled ones. Bundled \
                 policies are stored on first use.",
            ),
        post("/api/v1/plugins", PLUGINS, push)
            .summary("Uploads a policy")
            .details("Send a signature in the header `x-treadle-signature` or in the form.")
            .takes_upload()
            .answers::<Pushed>(200, "The tenant already had it.")
            .answers::<Pushed>(201, "Stored for the tenant.")
            .fails(invalid)
            .fails(&[ErrorCode::TenantLimit]),
        post("/api/v1/plugins/check", PLUGINS, check)
            .summary("Checks a policy without storing it")
            .takes_upload()
            .fails(invalid),
        get("/api/v1/plugins/{plugin}", VIEW, show)
            .summary("One policy and the outcomes of its questions")
            .fails(&[ErrorCode::PluginUnknown, ErrorCode::PluginInvalid]),
        get("/api/v1/plugins/{plugin}/logs", VIEW, logs)
            .summary("A policy's log")
            .details("Clients that accept `text/event-stream` get a stream of events.")
            .answers::<LogPage>(200, "Lines, oldest first.")
            .fails(&[ErrorCode::PluginUnknown, ErrorCode::PluginInvalid]),
    ]
}

/// A policy without its component.
#[derive(Clone, Serialize, ToSchema)]
struct PluginView {
    /// Digest of the component.
    digest: String,
    /// World that it implements.
    world: String,
    /// Its name.
    name: String,
    /// Its version.
    version: String,
    /// What it does, in one line.
    summary: String,
    /// Size of the component.
    size_bytes: u64,
    /// When it was uploaded, in microseconds since 1970; absent for a bundled one before its first
    /// use.
    uploaded_at_us: Option<u64>,
    /// The signer, if it was signed.
    signed_by: Option<String>,
}

/// The result of an upload.
#[derive(Serialize, ToSchema)]
struct Pushed {
    #[serde(flatten)]
    plugin: PluginView,
    /// True if the tenant did not have it before.
    new: bool,
}

/// Policies that can be bound.
#[derive(Serialize, ToSchema)]
struct Plugins {
    /// Stored policies, newest first, then the bundled ones.
    plugins: Vec<PluginView>,
}

/// A policy and its statistics.
#[derive(Serialize, ToSchema)]
struct PluginDetails {
    #[serde(flatten)]
    plugin: PluginView,
    /// Functions of its world that it answers.
    functions: Vec<String>,
    /// Columns that it requests beyond those of its world.
    columns: Vec<String>,
    /// A JSON Schema of its configuration; null if it has none.
    #[schema(value_type = Option<Object>)]
    config_schema: Value,
    /// Outcomes of its questions, if it was used recently.
    statistics: Option<VersionFigures>,
}

/// A page of a log.
#[derive(Serialize, ToSchema)]
struct LogPage {
    /// Digest of the policy.
    digest: String,
    /// Lines, oldest first.
    lines: Vec<PolicyLogLine>,
    /// Lines that were lost because they were not read in time.
    dropped: u64,
}

async fn push(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Response, Response> {
    let mut upload = upload(request).await?;
    let signed = upload.signature.is_some();
    check_room(&app, &caller, &upload.bytes, signed).await?;
    upload.signed_only = !caller.principal.takes_unsigned();
    let pushed = app.policies.push(upload).await;
    let (head, _) = pushed.map_err(|error| failed(&error))?;
    let new = own(&app, &caller, &head).await?;
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let plugin = PluginView::of(&head);
    Ok((status, Json(Pushed { plugin, new })).into_response())
}

/// Checks that the caller's tenant may store another plugin.
async fn check_room(
    app: &App,
    caller: &Caller,
    bytes: &[u8],
    signed: bool,
) -> Result<(), Response> {
    let owned = owned(app, &[caller.principal.tenant.tenant.name()]).await?;
    let stored: u64 = owned.iter().map(|head| head.size_bytes).sum();
    let new_bytes = bytes.len() as u64;
    caller
        .principal
        .check_plugin(owned.len() as u64, stored, new_bytes, signed)
        .map_err(|error| error_response(&error))?;
    check_share(caller.principal.tenants, &owned, new_bytes).map_err(|error| failed(&error))
}

/// Adds a stored plugin to the caller's tenant; true if it was new there.
async fn own(app: &App, caller: &Caller, head: &PluginHead) -> Result<bool, Response> {
    let name = caller.principal.tenant.tenant.name();
    let claim = app
        .store
        .claim_plugin(name, &head.digest, treadle_auth::now_us());
    let new = claim.await.map_err(|error| super::store_failed(&error))?;
    if new {
        let change = Change {
            action: "plugin.uploaded",
            target: &head.digest,
            before: Value::Null,
            after: serde_json::to_value(PluginView::of(head)).unwrap_or_default(),
        };
        let recorded = app.auth.audit.record(caller, change).await;
        recorded.map_err(|_| super::not_audited())?;
    }
    Ok(new)
}

/// One of the plugins that the caller may inspect. The log of a bundled policy is about the
/// programs of all tenants.
async fn find(app: &App, caller: &Caller, plugin: &str) -> Result<PluginHead, Response> {
    let visible = visible_of(app, caller, &[caller.principal.tenant.tenant.name()]).await?;
    let found = app
        .policies
        .resolve(plugin, |head| visible.sees(head))
        .await;
    found.map_err(|error| failed(&error))
}

/// Which plugins a caller may see: those of its tenant, or all.
pub(super) struct Visible {
    pub(super) all: bool,
    pub(super) digests: Vec<String>,
}

impl Visible {
    /// Adds a policy by its reference.
    pub(super) fn add_ref(&mut self, policy: &str) {
        let digest = policy.rsplit_once('+').map(|(_, start)| start.to_owned());
        self.digests.extend(digest);
    }

    /// Whether the caller may see a policy by its reference, `name@version+start-of-digest`. A
    /// reference without a digest is the daemon's own policy.
    pub(super) fn sees_ref(&self, policy: &str) -> bool {
        match policy.rsplit_once('+') {
            None | Some((_, "native")) => true,
            Some((_, start)) => self.all || self.digests.iter().any(|d| d.starts_with(start)),
        }
    }

    pub(super) fn sees(&self, head: &PluginHead) -> bool {
        self.all || self.digests.binary_search(&head.digest).is_ok()
    }
}

/// Plugins that the caller may bind: its tenant's and the bundled ones.
pub(super) async fn visible(app: &App, caller: &Caller) -> Result<Visible, Response> {
    let own = caller.principal.tenant.tenant.name();
    visible_of(app, caller, &[own, WHOLE_DAEMON]).await
}

async fn visible_of(app: &App, caller: &Caller, owners: &[&str]) -> Result<Visible, Response> {
    Ok(Visible {
        all: caller.principal.root || app.auth.has_one_tenant(),
        digests: digests_of(app, owners).await?,
    })
}

/// Digests of some owners' plugins, sorted; `*` owns the bundled ones.
async fn digests_of(app: &App, owners: &[&str]) -> Result<Vec<String>, Response> {
    let mut digests = Vec::new();
    for owner in owners {
        let own = app.store.claimed_plugins(owner).await;
        digests.extend(own.map_err(|error| super::store_failed(&error))?);
    }
    digests.sort_unstable();
    Ok(digests)
}

/// Plugins of some owners, newest first.
async fn owned(app: &App, owners: &[&str]) -> Result<Vec<PluginHead>, Response> {
    let mut heads = app.policies.list().await.map_err(|error| failed(&error))?;
    let digests = digests_of(app, owners).await?;
    heads.retain(|head| digests.binary_search(&head.digest).is_ok());
    Ok(heads)
}

async fn check(State(app): State<App>, request: Request) -> Answer<CheckReport> {
    let upload = upload(request).await?;
    let inspection = app.policies.inspect(upload.bytes).await;
    let inspection = inspection.map_err(|error| failed(&error))?;
    Ok(Json(inspection.into()))
}

async fn list(State(app): State<App>, caller: Caller) -> Answer<Plugins> {
    let own = caller.principal.tenant.tenant.name();
    let heads = owned(&app, &[own, WHOLE_DAEMON]).await?;
    let stored = heads.iter().map(PluginView::of);
    let others = unstored(&heads).map(PluginView::unstored);
    Ok(Json(Plugins {
        plugins: stored.chain(others).collect(),
    }))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(plugin): InPath<String>,
) -> Answer<PluginDetails> {
    let (head, statistics) = match find(&app, &caller, &plugin).await {
        Ok(head) => {
            let statistics = app.policies.statistics_of(&head, tenant_prefix(&caller));
            let statistics = statistics.await.map_err(|error| failed(&error))?;
            let world = World::from_name(&head.world);
            let figures = statistics.zip(world).map(|(statistics, world)| {
                VersionFigures::of(&statistics, app.policies.deadline_ms(world))
            });
            (PluginView::of(&head), figures)
        }
        // A bundled policy can be viewed before its first use.
        Err(response) => match bundled(&plugin) {
            Some(head) => (PluginView::unstored(head), None),
            None => return Err(response),
        },
    };
    let said = app.policies.describe(&head.digest).await;
    let said = said.map_err(|error| failed(&error))?;
    Ok(Json(PluginDetails {
        plugin: head,
        functions: said.functions,
        columns: said.columns,
        config_schema: serde_json::from_str(&said.config_schema).unwrap_or_default(),
        statistics,
    }))
}

/// Position in a log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    /// Only lines with a greater number.
    after: Option<u64>,
}

async fn logs(
    State(app): State<App>,
    caller: Caller,
    InPath(plugin): InPath<String>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let head = find(&app, &caller, &plugin).await?;
    let after = query.after.unwrap_or(0);
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        let logs = app.policies.logs();
        let (lines, dropped) = logs.after(&head.digest, tenant_prefix(&caller), after);
        let digest = head.digest;
        let page = LogPage {
            digest,
            lines: lines.into_iter().map(Into::into).collect(),
            dropped,
        };
        return Ok(Json(page).into_response());
    }
    let policies = app.policies.clone();
    let tenant: Arc<str> = tenant_prefix(&caller).into();
    let seen = futures_util::stream::unfold((after, true), move |(after, first)| {
        let (policies, tenant) = (policies.clone(), tenant.clone());
        let digest = head.digest.clone();
        async move {
            if !first {
                tokio::time::sleep(LOG_PAUSE).await;
            }
            let (lines, _) = policies.logs().after(&digest, &tenant, after);
            let last = lines.last().map_or(after, |line| line.number);
            let events = lines.into_iter().map(|line| {
                let event = Event::default().id(line.number.to_string());
                event.json_data(PolicyLogLine::from(line))
            });
            let events = futures_util::stream::iter(events.collect::<Vec<_>>());
            Some((events, (last, false)))
        }
    });
    let seen = Sse::new(seen.flatten()).keep_alive(KeepAlive::default());
    Ok(seen.into_response())
}

fn tenant_prefix(caller: &Caller) -> &str {
    caller.principal.tenant.tenant.prefix()
}

pub(super) fn failed(error: &RegistryError) -> Response {
    match error {
        RegistryError::Refused(refusal) => {
            let code = ErrorCode::PluginInvalid;
            let error = Refused {
                code: code.as_str(),
                kind: code.kind(),
                message: refusal.to_string(),
                param: None,
                refusal: refusal.into(),
            };
            (StatusCode::BAD_REQUEST, Json(RefusedUpload { error })).into_response()
        }
        RegistryError::Unknown(_) => refuse(ErrorCode::PluginUnknown, error.to_string()),
        RegistryError::Load(_)
        | RegistryError::Ambiguous { .. }
        | RegistryError::World { .. }
        | RegistryError::NativeRole => refuse(ErrorCode::PluginInvalid, error.to_string()),
        RegistryError::BeyondShare { .. }
        | RegistryError::Store(StoreError::PluginsFull { .. }) => {
            refuse(ErrorCode::TenantLimit, error.to_string())
        }
        RegistryError::Change(_) => refuse(ErrorCode::BindingConflict, error.to_string()),
        RegistryError::EndedEarly(_) => refuse(ErrorCode::Internal, error.to_string()),
        RegistryError::Stopped(_) => stopped(),
        RegistryError::NotRecorded(error) => not_recorded(*error),
        RegistryError::Store(error) => super::store_failed(error),
    }
}

/// The error envelope, with the check that an upload failed.
#[derive(Serialize)]
struct RefusedUpload {
    error: Refused,
}

#[derive(Serialize)]
struct Refused {
    code: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
    param: Option<String>,
    refusal: CheckFailure,
}

impl PluginView {
    fn of(head: &PluginHead) -> Self {
        Self {
            digest: head.digest.clone(),
            world: head.world.clone(),
            name: head.name.clone(),
            version: head.version.clone(),
            summary: head.summary.clone(),
            size_bytes: head.size_bytes,
            uploaded_at_us: Some(head.uploaded_at_us),
            signed_by: head.signed_by.clone(),
        }
    }

    /// A bundled policy, before its first use.
    fn unstored(head: &PluginHead) -> Self {
        Self {
            uploaded_at_us: None,
            ..Self::of(head)
        }
    }
}
