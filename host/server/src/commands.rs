//! What clients may tell the daemon over REST and over the broker alike.

use serde_json::{Map, Value};
use treadle_core::Event;
use treadle_model::{ClientName, Tenant};
use treadle_wire::{ErrorBody, ErrorCode};

/// Workers at once.
pub(crate) const WORKERS_MAX: usize = 4_096;

/// The name in a field of a body that needs it; an empty one is as absent.
pub(crate) fn in_body(body: &Map<String, Value>, field: &str) -> Result<ClientName, ErrorBody> {
    let text = body.get(field).and_then(Value::as_str);
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        let problem = format!("`{field}` is missing; it is a text");
        return Err(ErrorBody::new(ErrorCode::MissingField, problem).with_param(field));
    };
    Ok(ClientName::parse(field, text)?)
}

/// The event of a tenant's message about an action.
pub(crate) fn action_event(
    message: &Map<String, Value>,
    tenant: &Tenant,
) -> Result<Event, ErrorBody> {
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
