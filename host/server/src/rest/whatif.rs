//! What-if runs: replaying recorded work under other policies, in the background.

use super::Endpoint;
use super::plugins::{failed, visible};
use crate::app::App;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use serde_json::Value;
use treadle_auth::Caller;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::{Accepted, Answer};
use treadle_endpoints::{delete, get, post};
use treadle_http::error_response;
use treadle_whatif::policies::PolicyFound;
use treadle_whatif::queue::unknown;
use treadle_whatif::request::{StartRun, WhatIfRequest, add_bound};
use treadle_whatif::{RunView, WhatIfError};
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let (runs, one) = ("/api/v1/what-if/runs", "/api/v1/what-if/runs/{run}");
    vec![
        get(runs, VIEW, list).summary("What-if runs, newest first"),
        post(runs, RUN, start)
            .takes_action()
            .summary("Queues a what-if run")
            .fails(&[ErrorCode::WhatIfFull, ErrorCode::PluginUnknown]),
        get(one, VIEW, show)
            .summary("The progress or the results of a what-if run")
            .answers::<RunView>(200, "The run, with its report once it is done.")
            .fails(&[ErrorCode::WhatIfRunUnknown]),
        delete(one, RUN, cancel)
            .summary("Cancels a what-if run that has not ended")
            .fails(&[ErrorCode::WhatIfRunUnknown]),
    ]
}

async fn start(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<StartRun>,
) -> Result<Accepted<RunView>, Response> {
    let refused = |failure: WhatIfError| error_response(&failure.body());
    let tenant = &caller.principal.tenant.tenant;
    app.whatif.check_room(tenant).map_err(refused)?;
    // A trace may be long.
    let read = tokio::task::spawn_blocking(|| WhatIfRequest::of(body)).await;
    let read = read.map_err(|error| refused(WhatIfError::Ended(error.to_string())))?;
    let request = read.map_err(refused)?;
    let mut policies = policies_of(&app, &caller, &request).await?;
    add_bound(&*app.store, tenant, &request, &mut policies)
        .await
        .map_err(refused)?;
    let run = app.whatif.start(tenant, request, policies);
    run.map(Accepted).map_err(refused)
}

/// The stored plugins that the sets name, out of those that the caller may bind. They are loaded
/// when the run starts.
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

/// Runs of a tenant.
#[derive(Serialize, ToSchema)]
struct RunList {
    /// Newest first, without their reports.
    runs: Vec<RunView>,
}

async fn list(State(app): State<App>, caller: Caller) -> Json<RunList> {
    let runs = app.whatif.list(&caller.principal.tenant.tenant);
    Json(RunList { runs })
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(run): InPath<String>,
) -> Result<Response, Response> {
    let shown = app.whatif.show(&caller.principal.tenant.tenant, &run);
    let text = shown.ok_or_else(|| error_response(&unknown(&run)))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn cancel(
    State(app): State<App>,
    caller: Caller,
    InPath(run): InPath<String>,
) -> Answer<RunView> {
    let cancelled = app.whatif.cancel(&caller.principal.tenant.tenant, &run);
    cancelled
        .map(Json)
        .ok_or_else(|| error_response(&unknown(&run)))
}
