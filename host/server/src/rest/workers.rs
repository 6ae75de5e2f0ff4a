//! Workers: engines come and go while treadle runs. The shapes are those of
//! SGLang's router, whose clients wait until they see the URLs they registered.

use super::{not_audited, not_recorded, object, ok, refuse, stopped};
use crate::app::App;
use crate::commands::WORKERS_MAX;
use axum::extract::{Path, Query, State};
use axum::http::Uri;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use treadle_auth::{Caller, Change};
use treadle_core::Event;
use treadle_core::worker::Worker;
use treadle_engines::Declared;
use treadle_http::error_response;
use treadle_model::WorkerId;
use treadle_wire::ErrorCode;

/// A worker's URL in the query, as older clients send it.
#[derive(Deserialize)]
pub(super) struct UrlQuery {
    url: Option<String>,
    worker_url: Option<String>,
}

/// `GET /workers`.
pub(super) async fn list(State(app): State<App>) -> Response {
    match entries(&app).await {
        Some(workers) => {
            let total = workers.len();
            ok(json!({"workers": workers, "total": total}))
        }
        None => stopped(),
    }
}

/// `GET /list_workers`.
pub(super) async fn list_urls(State(app): State<App>) -> Response {
    match entries(&app).await {
        Some(workers) => {
            ok(json!({"urls": workers.iter().map(|w| w["url"].clone()).collect::<Vec<_>>()}))
        }
        None => stopped(),
    }
}

async fn entries(app: &App) -> Option<Vec<Value>> {
    let entry = |w: &Worker| {
        json!({
            "id": w.id.0.to_string(),
            "url": w.url,
            "worker_type": "regular",
            "is_healthy": w.is_healthy(),
            "engine": w.engine,
            "load": w.running_steps,
            "programs": w.programs.len(),
            "used_tokens": w.used_tokens(),
            "capacity_tokens": w.capacity.tokens,
        })
    };
    let read = app.driver.read(move |view| {
        let workers = view.core.state().workers.values();
        workers
            .filter(|w| !w.leaving)
            .map(|w| (w.id, entry(w)))
            .collect::<Vec<_>>()
    });
    let workers = read.await.ok()?;
    Some(
        workers
            .into_iter()
            .map(|(id, entry)| with_load(app, id, entry))
            .collect(),
    )
}

/// Adds what the engine itself reported, beside treadle's own ledger.
fn with_load(app: &App, worker: WorkerId, mut entry: Value) -> Value {
    if let Some(load) = app.engines.load(worker) {
        entry["engine_load"] = json!({
            "running": load.running,
            "waiting": load.waiting,
            "used_tokens": load.used_tokens,
            "prompt_tokens_total": load.prompt_tokens_total,
            "cached_tokens_total": load.cached_tokens_total,
        });
    }
    entry
}

/// `POST /workers {url, worker_type?, bootstrap_port?, kind?, capacity_tokens?}`.
pub(super) async fn add(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UrlQuery>,
    body: Bytes,
) -> Response {
    let request = match object(if body.is_empty() { b"{}" } else { &body }) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let in_body = ["url", "worker_url"]
        .iter()
        .find_map(|key| request.get(*key)?.as_str());
    let Some(url) = in_body
        .map(ToOwned::to_owned)
        .or(query.url)
        .or(query.worker_url)
    else {
        return refuse(
            ErrorCode::MissingField,
            "`url` is missing; send {\"url\": \"http://host:port\"}",
        );
    };
    let valid = url.parse::<Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())
    });
    if !valid {
        let message = format!("`url` is `{url}`; it must have the form http://host:port");
        return refuse(ErrorCode::InvalidField, message);
    }
    let declared = match declared(&request) {
        Ok(declared) => declared,
        Err(response) => return response,
    };
    register(&app, &caller, &url, declared).await
}

fn declared(request: &serde_json::Map<String, Value>) -> Result<Declared, Response> {
    let kind = request.get("kind").and_then(Value::as_str);
    let capacity_tokens = match request.get("capacity_tokens") {
        None | Some(Value::Null) => None,
        // What is not a whole number is refused as 0 is.
        Some(value) => Some(value.as_u64().unwrap_or_default()),
    };
    Declared::new(kind, capacity_tokens).map_err(|error| error_response(&error))
}

async fn register(app: &App, caller: &Caller, url: &str, declared: Declared) -> Response {
    let wanted: Box<str> = url.into();
    let known = app.driver.read(move |view| {
        let workers = &view.core.state().workers;
        let same = |w: &&Worker| w.url == wanted && !w.leaving;
        let known = workers.values().find(same).map(|w| w.id);
        (known, workers.len())
    });
    let (worker, added) = match known.await {
        Ok((Some(worker), _)) => (worker, false),
        Ok((None, count)) if count >= WORKERS_MAX => {
            let message = format!("{WORKERS_MAX} workers are registered; remove one first");
            return refuse(ErrorCode::QueueFull, message);
        }
        Ok((None, _)) => (
            WorkerId(app.next_worker.fetch_add(1, Ordering::Relaxed)),
            true,
        ),
        Err(_) => return stopped(),
    };
    app.engines.register(worker, url, declared).await;
    let workers = entries(app).await.unwrap_or_default();
    let id = worker.0.to_string();
    let entry = workers.iter().find(|w| w["id"] == *id);
    let change = Change {
        action: if added {
            "worker.added"
        } else {
            "worker.registered_again"
        },
        target: url,
        before: Value::Null,
        after: entry.cloned().unwrap_or_default(),
    };
    if app.auth.audit.record(caller, change).await.is_err() {
        return not_audited();
    }
    ok(json!({
        "status": "success",
        "added": added,
        "worker_id": worker.0.to_string(),
        "url": url,
        "workers": workers,
        "worker_urls": workers.iter().map(|w| w["url"].clone()).collect::<Vec<_>>(),
    }))
}

/// `DELETE /workers/{id or percent-encoded URL}`.
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(reference): Path<String>,
) -> Response {
    take_out(&app, &caller, reference).await
}

/// `POST /remove_worker?url=`.
pub(super) async fn remove_by_query(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UrlQuery>,
) -> Response {
    match query.url.or(query.worker_url) {
        Some(url) => take_out(&app, &caller, url).await,
        None => refuse(ErrorCode::MissingField, "`url` is missing from the query"),
    }
}

async fn take_out(app: &App, caller: &Caller, reference: String) -> Response {
    let wanted = reference.clone();
    let found = app.driver.read(move |view| {
        let bare = wanted.trim_end_matches('/');
        let same = |w: &&Worker| {
            !w.leaving && (w.id.0.to_string() == wanted || w.url.trim_end_matches('/') == bare)
        };
        let worker = view.core.state().workers.values().find(same);
        worker.map(|w| (w.id, w.url.to_string(), w.programs.len()))
    });
    let (worker, url, programs) = match found.await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let message = format!("no worker `{reference}` is registered; GET /workers lists them");
            return refuse(ErrorCode::WorkerUnknown, message);
        }
        Err(_) => return stopped(),
    };
    app.engines.forget(worker);
    let removed = Event::WorkerRemoved { worker };
    if let Err(error) = app.driver.event_committed(removed).await {
        return not_recorded(error);
    }
    let change = Change {
        action: "worker.removed",
        target: &url,
        before: json!({"id": worker.0.to_string(), "url": url, "programs": programs}),
        after: Value::Null,
    };
    if app.auth.audit.record(caller, change).await.is_err() {
        return not_audited();
    }
    let workers = entries(app).await.unwrap_or_default();
    ok(
        json!({"status": "success", "removed": true, "workers": workers,
        "worker_urls": workers.iter().map(|w| w["url"].clone()).collect::<Vec<_>>()}),
    )
}
