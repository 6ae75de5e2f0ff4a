//! Reports of tool runners about actions.

use super::{not_recorded, object, ok};
use crate::app::App;
use crate::commands::action_event;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use treadle_auth::Caller;
use treadle_http::error_response;

/// `POST /v1/actions {"program_id", "action_id", "event": "started"|"finished", "tool", "ok"}`:
/// acknowledged once it is on record. Reporting it twice changes nothing.
pub(super) async fn report(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let request = match object(&body) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let event = match action_event(&request, &caller.principal.tenant.tenant) {
        Ok(event) => event,
        Err(error) => return error_response(&error),
    };
    if let Err(error) = app.driver.event_committed(event).await {
        return not_recorded(error);
    }
    ok(json!({"recorded": true}))
}
