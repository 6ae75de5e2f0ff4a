//! Pods in the API.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream::unfold};
use serde_json::{Value, json};

use super::{State as Server, fixture};

type Queries = Query<BTreeMap<String, String>>;

fn refused(name: &str) -> Response {
    let status = fixture(name);
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = StatusCode::from_u16(code.expect("a code")).expect("a status");
    (code, Json(status)).into_response()
}

/// Records a request, and returns its refusal, if any.
pub(super) fn met(server: &Server, method: &'static str, uri: &Uri) -> Option<Response> {
    let mut held = server.lock();
    held.requests.push(format!("{method} {uri}"));
    let next = held.refusals.front().copied();
    let (_, name) = next.filter(|(refused, _)| *refused == method)?;
    held.refusals.pop_front();
    drop(held);
    Some(refused(name))
}

fn matches(pod: &Value, selector: Option<&String>) -> bool {
    let pairs = selector
        .into_iter()
        .flat_map(|selector| selector.split(','));
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.all(|(key, value)| pod["metadata"]["labels"][key] == value)
}

/// The response for a missing pod.
pub(super) fn missing() -> Response {
    refused("status_not_found")
}

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    uri: Uri,
    Json(mut pod): Json<Value>,
) -> Response {
    if let Some(refusal) = met(&server, "POST", &uri) {
        return refusal;
    }
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    let mut held = server.lock();
    if held.pods.contains_key(&name) {
        return refused("status_already_exists");
    }
    pod["metadata"]["namespace"] = "rl".into();
    pod["metadata"]["uid"] = format!("00000000-0000-4000-8000-{:012}", held.events.len()).into();
    pod["metadata"]["creationTimestamp"] = "2026-01-15T10:00:00Z".into();
    pod["status"] = fixture("pod_pending");
    let created = server.tell(&mut held, "ADDED", pod.clone());
    let fate = held.fates.pop_front().unwrap_or("pod_running");
    pod["status"] = fixture(fate);
    let pod = server.tell(&mut held, "MODIFIED", pod);
    held.pods.insert(name, pod);
    (StatusCode::CREATED, Json(created)).into_response()
}

pub(super) async fn read(
    State(server): State<Arc<Server>>,
    uri: Uri,
    Path(name): Path<String>,
) -> Response {
    if let Some(refusal) = met(&server, "GET", &uri) {
        return refusal;
    }
    match server.lock().pods.get(&name) {
        Some(pod) => Json(pod.clone()).into_response(),
        None => refused("status_not_found"),
    }
}

pub(super) async fn delete(
    State(server): State<Arc<Server>>,
    uri: Uri,
    Path(name): Path<String>,
    Json(options): Json<Value>,
) -> Response {
    if let Some(refusal) = met(&server, "DELETE", &uri) {
        return refusal;
    }
    assert_eq!(
        options["gracePeriodSeconds"], 0,
        "nothing waits for the pod"
    );
    server.kill(&name);
    let mut held = server.lock();
    match held.pods.remove(&name) {
        Some(pod) => Json(server.tell(&mut held, "DELETED", pod)).into_response(),
        None => refused("status_not_found"),
    }
}

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    uri: Uri,
    Query(query): Queries,
) -> Response {
    if query.get("watch").is_some_and(|watch| watch == "true") {
        server.lock().requests.push(format!("GET {uri}"));
        return watch(server, &query);
    }
    if let Some(refusal) = met(&server, "GET", &uri) {
        return refusal;
    }
    let listed = {
        let held = server.lock();
        let pods = held.pods.values();
        let pods: Vec<&Value> = pods
            .filter(|pod| matches(pod, query.get("labelSelector")))
            .collect();
        let version = server.version.borrow().to_string();
        json!({
            "apiVersion": "v1", "kind": "PodList",
            "metadata": {"resourceVersion": version}, "items": pods,
        })
    };
    let mut waits = server.lists_wait.subscribe();
    let _ = waits.wait_for(|waits| !waits).await;
    Json(listed).into_response()
}

/// Streams a line for each event from a version on.
fn watch(server: Arc<Server>, query: &BTreeMap<String, String>) -> Response {
    let from: u64 = query["resourceVersion"].parse().expect("a version");
    let selector = query.get("labelSelector").cloned();
    let changed = server.version.subscribe();
    let lines = unfold(Some((from, changed)), move |state| {
        let (server, selector) = (server.clone(), selector.clone());
        async move {
            let (mut from, mut changed) = state?;
            loop {
                changed.borrow_and_update();
                let next = {
                    let held = server.lock();
                    if from < held.oldest {
                        let expired = json!({"type": "ERROR", "object": fixture("status_expired")});
                        return Some((line(&expired), None));
                    }
                    let mut events = held.events.iter();
                    events.find(|(version, _)| *version > from).cloned()
                };
                let Some((version, event)) = next else {
                    changed.changed().await.ok()?;
                    continue;
                };
                from = version;
                if matches(&event["object"], selector.as_ref()) {
                    return Some((line(&event), Some((from, changed))));
                }
            }
        }
    });
    Body::from_stream(lines.map(Ok::<_, Infallible>)).into_response()
}

fn line(event: &Value) -> String {
    format!("{event}\n")
}
