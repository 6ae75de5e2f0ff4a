//! What-if runs: recorded work under other policies, in the background.

use super::plugins::{failed, visible};
use super::{object, ok};
use crate::app::App;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_http::error_response;
use treadle_whatif::policies::PolicyFound;
use treadle_whatif::queue::unknown;
use treadle_whatif::request::WhatIfRequest;
use treadle_whatif::request::add_bound;

/// `POST /v1/lab/runs`: accepts a run; it starts when its turn comes.
pub(super) async fn start(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let object = match object(&body) {
        Ok(object) => object,
        Err(response) => return response,
    };
    let request = match WhatIfRequest::of(object) {
        Ok(request) => request,
        Err(failure) => return error_response(&failure.body()),
    };
    let tenant = &caller.principal.tenant.tenant;
    if let Err(failure) = app.whatif.check_room(tenant) {
        return error_response(&failure.body());
    }
    let mut policies = match policies_of(&app, &caller, &request).await {
        Ok(policies) => policies,
        Err(response) => return response,
    };
    if let Err(failure) = add_bound(&*app.store, tenant, &request, &mut policies).await {
        return error_response(&failure.body());
    }
    match app.whatif.start(tenant, request, policies) {
        Ok(run) => (StatusCode::ACCEPTED, Json(run)).into_response(),
        Err(failure) => error_response(&failure.body()),
    }
}

/// The stored plugins that the sets name, of those that the caller may bind. They are read when the
/// run's turn comes.
async fn policies_of(
    app: &App,
    caller: &Caller,
    request: &WhatIfRequest,
) -> Result<Vec<Vec<PolicyFound>>, Response> {
    let visible = visible(app, caller).await?;
    let mut policies = Vec::with_capacity(request.sets.len());
    for set in &request.sets {
        let mut of_set = Vec::with_capacity(set.policies.len());
        for spec in &set.policies {
            let found = app
                .policies
                .obtain(&spec.policy, |head| visible.sees(head))
                .await;
            let head = found.map_err(|error| failed(&error))?;
            of_set.push(PolicyFound {
                asked: spec.policy.clone(),
                digest: head.digest,
                config: Value::Object(spec.config.clone()).to_string(),
                answers_anyway: false,
            });
        }
        policies.push(of_set);
    }
    Ok(policies)
}

/// `GET /v1/lab/runs`: the runs of the caller's tenant, newest first.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let runs = app.whatif.list(&caller.principal.tenant.tenant);
    ok(json!({"runs": runs}))
}

/// `GET /v1/lab/runs/{run}`: its progress, or its results.
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(run): Path<String>,
) -> Response {
    match app.whatif.show(&caller.principal.tenant.tenant, &run) {
        Some(run) => ([(header::CONTENT_TYPE, "application/json")], run).into_response(),
        None => error_response(&unknown(&run)),
    }
}

/// `DELETE /v1/lab/runs/{run}`: cancels it, if it has not ended.
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Path(run): Path<String>,
) -> Response {
    match app.whatif.cancel(&caller.principal.tenant.tenant, &run) {
        Some(run) => ok(run),
        None => error_response(&unknown(&run)),
    }
}
