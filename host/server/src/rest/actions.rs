//! Reports of tool runners about actions.

use super::arguments::Body;
use super::endpoint::{Endpoint, post};
use super::not_recorded;
use super::signature::Answer;
use crate::app::App;
use crate::commands::ActionReport;
use axum::extract::State;
use axum::response::Json;
use serde::Serialize;
use treadle_auth::Caller;
use treadle_auth::permissions::RUN;
use treadle_http::error_response;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        post("/api/v1/actions", RUN, report)
            .summary("A tool call has started or finished")
            .details("Acknowledged once it is on record. Reporting it twice changes nothing.")
            .fails(&[ErrorCode::Overloaded]),
    ]
}

/// A report is on record.
#[derive(Serialize, ToSchema)]
struct Recorded {
    /// Always true.
    recorded: bool,
}

async fn report(
    State(app): State<App>,
    caller: Caller,
    Body(report): Body<ActionReport>,
) -> Answer<Recorded> {
    let event = report.event(&caller.principal.tenant.tenant);
    let event = event.map_err(|error| error_response(&error))?;
    app.driver
        .event_committed(event)
        .await
        .map_err(not_recorded)?;
    Ok(Json(Recorded { recorded: true }))
}
