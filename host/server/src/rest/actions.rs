//! Actions: those that treadle runs, and reports of tool runners about their own.

use super::Endpoint;
use super::{not_recorded, recorded_first, refuse, store_failed};
use crate::app::App;
use crate::commands::ActionReport;
use axum::extract::{FromRequest, Request, State};
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use treadle_auth::Caller;
use treadle_auth::permissions::{RUN, VIEW};
use treadle_endpoints::arguments::{InPath, Query, Raw, optional, page_limit, parse};
use treadle_endpoints::signature::{Answer, Takes};
use treadle_endpoints::{EndpointDescription, delete, get, post};
use treadle_http::error_response;
use treadle_model::ActionId;
use treadle_runs::actions::{ActionView, Actions, Failure, OutputView, Submission};
use treadle_store::{ActionPage, ActionRow};
use treadle_wire::ErrorCode;
use utoipa::{IntoParams, ToSchema};

/// The longest that a client may wait in one request, in seconds.
const WAIT_S_MAX: u64 = 3_600;
/// The error message if actions are disabled.
const DISABLED: &str = "this daemon runs no actions; set actions.enabled = true (docs/actions.md), \
     or report what your own runner does with `event`";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        post("/api/v1/actions", RUN, submit)
            .takes_action()
            .summary("Runs an action, or reports that a tool call has started or finished")
            .details(
                "With `run`, treadle runs the action. It is acknowledged once it is on record, and \
                 runs at most once unless it is `idempotent`. With `event`, the request reports a \
                 call that your own runner makes. An action with an `idempotency_key` can be sent \
                 again without effect.",
            )
            .fails(&[
                ErrorCode::Overloaded,
                ErrorCode::ActionsDisabled,
                ErrorCode::ProgramUnknown,
                ErrorCode::QueueFull,
                ErrorCode::TenantLimit,
                ErrorCode::TenantBusy,
                ErrorCode::IdempotencyKeyTaken,
            ]),
        get("/api/v1/actions", VIEW, list)
            .around(recorded_first)
            .summary("Actions run by treadle, newest first"),
        get("/api/v1/actions/{action}", VIEW, show)
            .summary("An action with its output; `wait_s` waits for its end")
            .fails(&[
                ErrorCode::ActionUnknown,
                ErrorCode::ActionsDisabled,
                ErrorCode::Overloaded,
                ErrorCode::TenantBusy,
            ]),
        delete("/api/v1/actions/{action}", RUN, cancel)
            .summary("Cancels an action, and stops it if it runs")
            .fails(&[
                ErrorCode::ActionUnknown,
                ErrorCode::ActionsDisabled,
                ErrorCode::Overloaded,
            ]),
    ]
}

/// The body of `POST /api/v1/actions`.
enum ActionRequest {
    Run(Box<Submission>, Value),
    Report(ActionReport),
}

impl<S: Send + Sync> FromRequest<S> for ActionRequest {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        let refused = |error| error_response(&error);
        let value: Value = parse(&bytes).map_err(refused)?;
        if value.get("run").is_none() {
            return parse(&bytes).map(Self::Report).map_err(refused);
        }
        let submission = parse(&bytes).map_err(refused)?;
        Ok(Self::Run(Box::new(submission), value))
    }
}

impl Takes for ActionRequest {
    fn describe(description: &mut EndpointDescription) {
        treadle_endpoints::arguments::Body::<ActionReport>::describe(description);
        description.takes::<ActionTaken>();
    }
}

/// An action for treadle to run, or a report about a call that your own runner makes.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is the schema of what is taken")]
enum ActionTaken {
    Run(Submission),
    Report(ActionReport),
}

/// The action or report is on record.
#[derive(Serialize, ToSchema)]
#[expect(
    clippy::struct_field_names,
    reason = "clients know the field by this name"
)]
struct Recorded {
    /// Always true.
    recorded: bool,
    /// The number of the action that treadle runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<u64>,
    /// Whether it was already on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
}

async fn submit(
    State(app): State<App>,
    caller: Caller,
    request: ActionRequest,
) -> Answer<Recorded> {
    let tenant = &caller.principal.tenant.tenant;
    match request {
        ActionRequest::Run(submission, written) => {
            let actions = running(&app)?;
            let admitted = actions.submit(tenant, *submission, &written).await;
            let admitted = admitted.map_err(failed)?;
            Ok(Json(Recorded {
                recorded: true,
                action: Some(admitted.action.0),
                repeated: Some(admitted.repeated),
            }))
        }
        ActionRequest::Report(report) => {
            let event = report
                .event(tenant)
                .map_err(|error| error_response(&error))?;
            app.driver
                .event_committed(event)
                .await
                .map_err(not_recorded)?;
            Ok(Json(Recorded {
                recorded: true,
                action: None,
                repeated: None,
            }))
        }
    }
}

/// Filters and paging of actions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ActionQuery {
    /// Only those of this job.
    job: Option<String>,
    /// Only those of this program.
    program_id: Option<String>,
    /// Only those of this status: waiting, starting, running, stopping or ended.
    status: Option<String>,
    /// Only those with a smaller number: `next` of the previous page.
    before: Option<u64>,
    /// Maximum number of actions; default 100.
    limit: Option<u32>,
}

/// A page of actions.
#[derive(Serialize, ToSchema)]
struct ActionList {
    /// Newest first.
    actions: Vec<ActionView>,
    /// The `before` of the next page; absent on the last one.
    next: Option<u64>,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ActionQuery>,
) -> Answer<ActionList> {
    let tenant = &caller.principal.tenant.tenant;
    let inside = |field, text| {
        let name = optional(field, text)?;
        Ok::<_, Response>(name.map(|name| tenant.inside(&name).into_owned()))
    };
    let page = ActionPage {
        job: inside("job", query.job)?,
        program: inside("program_id", query.program_id)?,
        status: query.status,
        names: tenant.into(),
        before: query.before,
        limit: page_limit(query.limit),
    };
    let rows = app.store.actions(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let is_full = rows.len() >= page.limit as usize;
    let next = rows.last().filter(|_| is_full).map(|row| row.action);
    let views = rows.into_iter();
    Ok(Json(ActionList {
        actions: views
            .filter_map(|row| ActionView::of(tenant, row))
            .collect(),
        next,
    }))
}

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WaitQuery {
    /// Seconds to wait for the end of the action; default 0, at most 3600. After that the response
    /// has its current state.
    wait_s: Option<u64>,
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(action): InPath<u64>,
    Query(query): Query<WaitQuery>,
) -> Answer<ActionView> {
    let wait_s = query.wait_s.unwrap_or(0);
    if wait_s > WAIT_S_MAX {
        let message =
            format!("`wait_s` is {wait_s}; send at most {WAIT_S_MAX}, and repeat the request");
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    let actions = running(&app)?;
    let tenant = &caller.principal.tenant.tenant;
    let wait = Duration::from_secs(wait_s);
    let row = actions.ended(tenant, ActionId(action), wait).await;
    shown(actions, &caller, row).await
}

async fn cancel(
    State(app): State<App>,
    caller: Caller,
    InPath(action): InPath<u64>,
) -> Answer<ActionView> {
    let actions = running(&app)?;
    let tenant = &caller.principal.tenant.tenant;
    let row = actions.cancel(tenant, ActionId(action)).await;
    shown(actions, &caller, row).await
}

async fn shown(
    actions: &Actions,
    caller: &Caller,
    row: Result<ActionRow, Failure>,
) -> Answer<ActionView> {
    let row = row.map_err(failed)?;
    let view = ActionView::of(&caller.principal.tenant.tenant, row)
        .ok_or_else(|| refuse(ErrorCode::ActionUnknown, "no such action"))?;
    let Some(digest) = view.output_digest() else {
        return Ok(Json(view));
    };
    let output = actions
        .output(&caller.principal.tenant.tenant, digest)
        .await;
    let output = output.map_err(|error| store_failed(&error))?;
    Ok(Json(
        view.with_output(output.as_deref().map(OutputView::of)),
    ))
}

/// The action runner, or a refusal if actions are disabled.
pub(super) fn running(app: &App) -> Result<&Actions, Response> {
    let actions = app.actions.as_deref();
    actions.ok_or_else(|| refuse(ErrorCode::ActionsDisabled, DISABLED))
}

pub(super) fn failed(failure: Failure) -> Response {
    error_response(&failure.into_refusal())
}
