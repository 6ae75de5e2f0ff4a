//! Lists of models: the engines' `/v1/models`, merged if they differ.

use super::GatewayState;
use super::forward::{ask, engines, headers_of, respond};
use super::headers::query_for_engines;
use super::model_names::not_found;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;
use treadle_core::programs::Worker;
use treadle_http::error_response;
use treadle_wire::ErrorBody;

const PATH: &str = "/v1/models";
/// Most engines that are queried for one list.
const ASKED_MAX: usize = 64;

/// All models. If all engines have the same, the response is that of one of them.
pub async fn models(State(app): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        let headers = headers_of(&app, &parts, &*crate::principal_of(&parts)?);
        let engines = apart(engines(&app).await?);
        let target = format!("{PATH}{}", query_for_engines(&parts.uri));
        if let [engine] = engines.as_slice() {
            let answer = ask(&app, engine, Method::GET, &target, &headers, Bytes::new());
            return Ok(respond(answer.await));
        }
        let all = entries(&app, engines, &target, &headers).await?;
        Ok(Json(json!({"object": "list", "data": all})).into_response())
    };
    answer
        .await
        .unwrap_or_else(|error: ErrorBody| error_response(&error))
}

/// One model, as its engine describes it.
pub async fn model(app: Arc<GatewayState>, id: String, request: Request) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        let headers = headers_of(&app, &parts, &*crate::principal_of(&parts)?);
        let engines = apart(engines(&app).await?);
        let all = entries(&app, engines, PATH, &headers).await?;
        let found = all.iter().find(|model| model["id"] == id.as_str());
        found.cloned().ok_or_else(|| {
            let known = all.iter().filter_map(|model| model["id"].as_str());
            not_found(&id, known)
        })
    };
    match answer.await {
        Ok(model) => Json(model).into_response(),
        Err(error) => error_response(&error),
    }
}

/// One engine per distinct set of models.
fn apart(engines: Vec<Worker>) -> Vec<Worker> {
    let mut seen = BTreeSet::new();
    let mut apart = engines;
    apart.retain(|w| seen.insert((w.model.clone(), w.other_models.clone())));
    apart.truncate(ASKED_MAX);
    apart
}

/// The models of all these engines, each once. Those of unresponsive engines are missing.
async fn entries(
    app: &Arc<GatewayState>,
    engines: Vec<Worker>,
    target: &str,
    headers: &HeaderMap,
) -> Result<Vec<Value>, ErrorBody> {
    let mut asked = JoinSet::new();
    for engine in engines {
        let (app, target, headers) = (app.clone(), target.to_owned(), headers.clone());
        asked.spawn(async move {
            let answer = ask(&app, &engine, Method::GET, &target, &headers, Bytes::new());
            let list = match answer.await {
                Ok(response) => Ok(json_of(&app, response).await),
                Err(error) => Err(error),
            };
            (engine.id, list)
        });
    }
    let mut lists = asked.join_all().await;
    lists.sort_by_key(|(engine, _)| *engine);
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut failed = None;
    for (_, list) in lists {
        match list {
            Ok(Some(Value::Object(mut list))) => {
                let data = list.remove("data");
                let Some(Value::Array(models)) = data else {
                    continue;
                };
                let named = models.into_iter().filter(|model| {
                    let id = model["id"].as_str();
                    id.is_some_and(|id| seen.insert(id.to_owned()))
                });
                all.extend(named);
            }
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// The JSON of an engine's response, if it succeeded.
pub(crate) async fn json_of(app: &GatewayState, response: Response<Incoming>) -> Option<Value> {
    if !response.status().is_success() {
        return None;
    }
    let body = Limited::new(response.into_body(), app.answer_bytes_max).collect();
    let body = tokio::time::timeout(app.forward_timeout, body).await;
    serde_json::from_slice(&body.ok()?.ok()?.to_bytes()).ok()
}
