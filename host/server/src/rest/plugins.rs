//! Policies: upload, check, list, logs.

use super::{ok, refuse, stopped};
use crate::app::App;
use axum::extract::{FromRequest, Multipart, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use treadle_auth::{Caller, Change};
use treadle_http::error_response;
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_registry::{RegistryError, Upload, bundled, unstored};
use treadle_store::PluginHead;
use treadle_wire::ErrorCode;

/// Carries the signature of a raw upload.
const SIGNATURE: &str = "x-treadle-signature";
/// How often a followed log is looked at.
const LOG_PAUSE: Duration = Duration::from_millis(250);

/// `POST /v1/plugins`: the component as the raw body, or as the first file of
/// a multipart form.
pub(super) async fn push(State(app): State<App>, caller: Caller, request: Request) -> Response {
    let mut upload = match upload(request).await {
        Ok(upload) => upload,
        Err(response) => return response,
    };
    let signed = upload.signature.is_some();
    if let Err(response) = check_room(&app, &caller, &upload.bytes, signed).await {
        return response;
    }
    upload.signed_only = !caller.principal.takes_unsigned();
    match app.policies.push(upload).await {
        Ok((head, _)) => {
            let new = match own(&app, &caller, &head).await {
                Ok(new) => new,
                Err(response) => return response,
            };
            let status = if new {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            let mut body = head_json(&head);
            body["new"] = Value::Bool(new);
            (status, Json(body)).into_response()
        }
        Err(error) => failed(&error),
    }
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
    caller
        .principal
        .check_plugin(owned.len() as u64, stored, bytes.len() as u64, signed)
        .map_err(|error| error_response(&error))
}

/// Makes a stored plugin the caller's tenant's; whether it was not before.
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
            after: head_json(head),
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
    all: bool,
    digests: Vec<String>,
}

impl Visible {
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

/// Digests that some owners have, in order; `*` owns what the daemon brings along.
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

/// `POST /v1/plugins/check`: every check of an upload, nothing stored.
pub(super) async fn check(State(app): State<App>, request: Request) -> Response {
    let upload = match upload(request).await {
        Ok(upload) => upload,
        Err(response) => return response,
    };
    match app.policies.inspect(upload.bytes).await {
        Ok(inspection) => ok(serde_json::to_value(&inspection).unwrap_or_default()),
        Err(error) => failed(&error),
    }
}

/// `GET /v1/plugins`: those of the caller's tenant and the bundled ones. Bundled ones that have not
/// been used are not stored yet.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let own = caller.principal.tenant.tenant.name();
    match owned(&app, &[own, WHOLE_DAEMON]).await {
        Ok(heads) => {
            let mut plugins: Vec<Value> = heads.iter().map(head_json).collect();
            plugins.extend(unstored(&heads).map(unstored_json));
            ok(json!({"plugins": plugins}))
        }
        Err(response) => response,
    }
}

/// `GET /v1/plugins/{plugin}`: one upload, and what became of the questions that
/// it was asked.
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(plugin): Path<String>,
) -> Response {
    let mut body = match find(&app, &caller, &plugin).await {
        Ok(head) => match shown(&app, &caller, &head).await {
            Ok(body) => body,
            Err(error) => return failed(&error),
        },
        // What it is called, so that it can be configured before it is bound.
        Err(response) => match bundled(&plugin) {
            Some(head) => unstored_json(head),
            None => return response,
        },
    };
    let digest = body["digest"].as_str().unwrap_or_default().to_owned();
    match app.policies.describe(&digest).await {
        Ok(said) => {
            body["functions"] = json!(said.functions);
            body["columns"] = json!(said.columns);
            body["config_schema"] = serde_json::from_str(&said.config_schema).unwrap_or_default();
            ok(body)
        }
        Err(error) => failed(&error),
    }
}

/// A stored plugin and what became of it.
async fn shown(app: &App, caller: &Caller, head: &PluginHead) -> Result<Value, RegistryError> {
    let statistics = app.policies.statistics_of(head, tenant_prefix(caller));
    let mut body = head_json(head);
    body["statistics"] = json!(statistics.await?);
    Ok(body)
}

/// Where to go on in a log.
#[derive(Deserialize)]
pub(super) struct LogQuery {
    after: Option<u64>,
}

/// `GET /v1/plugins/{plugin}/logs?after=`: what the policy wrote to its log, as a
/// page, or for clients that accept `text/event-stream` as a stream of events.
pub(super) async fn logs(
    State(app): State<App>,
    caller: Caller,
    Path(plugin): Path<String>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Response {
    let head = match find(&app, &caller, &plugin).await {
        Ok(head) => head,
        Err(response) => return response,
    };
    let after = query.after.unwrap_or(0);
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        let (lines, dropped) =
            app.policies
                .logs()
                .after(&head.digest, tenant_prefix(&caller), after);
        return ok(json!({"digest": head.digest, "lines": lines, "dropped": dropped}));
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
                event.json_data(line)
            });
            let events = futures_util::stream::iter(events.collect::<Vec<_>>());
            Some((events, (last, false)))
        }
    });
    Sse::new(seen.flatten())
        .keep_alive(KeepAlive::default())
        .into_response()
}

fn tenant_prefix(caller: &Caller) -> &str {
    caller.principal.tenant.tenant.prefix()
}

async fn upload(request: Request) -> Result<Upload, Response> {
    let kind = header_text(request.headers(), header::CONTENT_TYPE.as_str());
    let signature = header_text(request.headers(), SIGNATURE);
    let broken = |error: &dyn std::fmt::Display| {
        refuse(
            ErrorCode::PluginInvalid,
            format!("the upload could not be read: {error}"),
        )
    };
    let mut upload = Upload {
        signature,
        ..Upload::default()
    };
    if !kind.is_some_and(|kind| kind.starts_with("multipart/form-data")) {
        let body = Bytes::from_request(request, &()).await;
        upload.bytes = body.map_err(|e| broken(&e))?.into();
        return Ok(upload);
    }
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|e| broken(&e))?;
    let mut found = false;
    while let Some(field) = form.next_field().await.map_err(|e| broken(&e))? {
        if field.name() == Some("signature") {
            upload.signature = Some(field.text().await.map_err(|e| broken(&e))?);
        } else if !found
            && (field.file_name().is_some() || matches!(field.name(), Some("file" | "plugin")))
        {
            upload.bytes = field.bytes().await.map_err(|e| broken(&e))?.into();
            found = true;
        }
    }
    if found {
        return Ok(upload);
    }
    Err(refuse(
        ErrorCode::MissingField,
        "the form has no file; name its field `file`",
    ))
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    value.to_str().ok().map(str::to_owned)
}

pub(super) fn failed(error: &RegistryError) -> Response {
    match error {
        RegistryError::Refused(refusal) => {
            let body = json!({"error": {
                "code": "plugin_invalid",
                "type": "invalid_request_error",
                "message": refusal.to_string(),
                "param": null,
                "refusal": refusal,
            }});
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        }
        RegistryError::Unknown(_) => refuse(ErrorCode::PluginUnknown, error.to_string()),
        RegistryError::Load(_)
        | RegistryError::Ambiguous { .. }
        | RegistryError::World { .. }
        | RegistryError::NativeRole => refuse(ErrorCode::PluginInvalid, error.to_string()),
        RegistryError::Change(_) => refuse(ErrorCode::BindingConflict, error.to_string()),
        RegistryError::EndedEarly(_) => refuse(ErrorCode::Internal, error.to_string()),
        RegistryError::Stopped(_) => stopped(),
        RegistryError::Store(error) => super::store_failed(error),
    }
}

fn head_json(head: &PluginHead) -> Value {
    json!({
        "digest": head.digest, "world": head.world, "name": head.name, "version": head.version,
        "summary": head.summary, "size_bytes": head.size_bytes,
        "uploaded_at_us": head.uploaded_at_us, "signed_by": head.signed_by,
    })
}

/// A bundled policy, before its first use.
fn unstored_json(head: &PluginHead) -> Value {
    let mut body = head_json(head);
    body["uploaded_at_us"] = Value::Null;
    body
}
