//! What tool runners tell of actions.

use super::{object, ok, stopped};
use crate::app::App;
use crate::auth::Caller;
use crate::gateway::refuse;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use treadle_core::Event;
use treadle_wire::{ErrorBody, ErrorCode};

/// Longest name of a program, an action or a tool.
const NAME_BYTES_MAX: usize = 256;

/// `POST /v1/actions {"program_id", "action_id", "event": "started"|"finished", "tool", "ok"}`:
/// acknowledged once it is on record. Telling it twice changes nothing.
pub(super) async fn tell(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let request = match object(&body) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let event = match event_of(&request, |program| caller.principal.inside(program)) {
        Ok(event) => event,
        Err(error) => return refuse(error.code, error.message),
    };
    if app.driver.event_committed(event).await.is_err() {
        return stopped();
    }
    ok(json!({"recorded": true}))
}

/// The event that a message about an action tells of; `inside` gives a program's key its tenant.
pub(crate) fn event_of(
    message: &Map<String, Value>,
    inside: impl Fn(&str) -> String,
) -> Result<Event, ErrorBody> {
    let text = |field: &str| -> Result<&str, ErrorBody> {
        let value = message
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default();
        if value.is_empty() {
            let problem = format!("`{field}` is missing; it is a text");
            return Err(ErrorBody::new(ErrorCode::MissingField, problem));
        }
        if value.len() > NAME_BYTES_MAX {
            let problem = format!("`{field}` has more than {NAME_BYTES_MAX} bytes; shorten it");
            return Err(ErrorBody::new(ErrorCode::InvalidField, problem));
        }
        Ok(value)
    };
    let program = inside(text("program_id")?).into();
    let action = text("action_id")?.into();
    match text("event")? {
        "started" => Ok(Event::ActionStarted {
            program,
            action,
            tool: text("tool")?.into(),
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
