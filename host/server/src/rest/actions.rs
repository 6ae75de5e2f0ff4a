//! What tool runners tell of actions.

use super::names::in_body;
use super::{not_recorded, object, ok};
use crate::app::App;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use treadle_auth::Caller;
use treadle_core::Event;
use treadle_http::error_response;
use treadle_model::Tenant;
use treadle_wire::{ErrorBody, ErrorCode};

/// `POST /v1/actions {"program_id", "action_id", "event": "started"|"finished", "tool", "ok"}`:
/// acknowledged once it is on record. Telling it twice changes nothing.
pub(super) async fn tell(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let request = match object(&body) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let event = match event_of(&request, &caller.principal.tenant.tenant) {
        Ok(event) => event,
        Err(error) => return error_response(&error),
    };
    if let Err(error) = app.driver.event_committed(event).await {
        return not_recorded(error);
    }
    ok(json!({"recorded": true}))
}

/// The event that a message of a tenant about an action tells of.
pub(crate) fn event_of(message: &Map<String, Value>, tenant: &Tenant) -> Result<Event, ErrorBody> {
    let text = |field: &str| in_body(message, field).map(|name| Box::<str>::from(&*name));
    let program = tenant.inside(&in_body(message, "program_id")?).into();
    let action = text("action_id")?;
    match &*text("event")? {
        "started" => Ok(Event::ActionStarted {
            program,
            action,
            tool: text("tool")?,
        }),
        "finished" => Ok(Event::ActionFinished {
            program,
            action,
            ok: message.get("ok").is_none_or(|ok| ok != &Value::Bool(false)),
        }),
        other => {
            let problem = format!("`event` is `{other}`; it is `started` or `finished`");
            Err(ErrorBody::new(ErrorCode::InvalidField, problem))
        }
    }
}
