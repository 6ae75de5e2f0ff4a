//! An event of the journal as a message.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use treadle_broker::{Attributes, BODY_BYTES_MAX, Message, RoutingKey};
use treadle_core::training::TrainingEvent;
use treadle_model::tenant::split;
use treadle_runs::rfc3339;
use treadle_store::EventRow;

/// Version of the body's schema. It is increased when a field changes its meaning or is removed;
/// readers ignore unknown fields.
pub const SCHEMA_VERSION: u16 = 1;
/// Room in a body for all but the event's own data.
const FRAME_BYTES_MAX: usize = 16_384;
/// The entities of events, as the first part of their names. Other events are about training runs
/// or the daemon.
const ENTITIES: [&str; 7] = [
    "action", "gateway", "policy", "program", "step", "weights", "worker",
];

/// The body of a message.
#[derive(Serialize)]
struct Body<'e> {
    seq: u64,
    at_us: u64,
    tenant: &'e str,
    job: &'e str,
    program: Option<&'e str>,
    entity: &'e str,
    event: &'e str,
    /// `None` if the data was too large for a message: it is in the journal.
    data: Option<&'e RawValue>,
}

/// An event of the journal as a message.
pub fn message(row: &EventRow) -> Message {
    let (tenant, job) = split(&row.job);
    let program = row.program.as_deref().map(|program| split(program).1);
    let (entity, event) = named(&row.kind);
    let own;
    let data = if row.body.len() > BODY_BYTES_MAX - FRAME_BYTES_MAX {
        None
    } else {
        own = data(&row.body);
        Some(&*own)
    };
    let body = Body {
        seq: row.seq,
        at_us: row.at_us,
        tenant,
        job,
        program,
        entity,
        event,
        data,
    };
    Message {
        seq: row.seq,
        key: RoutingKey::event(tenant, job, entity, event),
        schema_version: SCHEMA_VERSION,
        attributes: Attributes {
            source: format!("/treadle/{tenant}/{job}"),
            kind: format!("treadle.{entity}.{event}"),
            subject: program.unwrap_or_default().to_owned(),
            time: rfc3339(row.at_us),
        },
        // Numbers, strings and JSON that was checked always have a JSON form.
        body: serde_json::to_vec(&body).unwrap_or_default(),
    }
}

/// Splits a kind of event into its entity and what happened to it.
fn named(kind: &str) -> (&str, &str) {
    if TrainingEvent::KINDS.contains(&kind) {
        return ("training", kind);
    }
    match kind.split_once('_') {
        Some((entity, event)) if ENTITIES.contains(&entity) => (entity, event),
        Some(("daemon", event)) => ("daemon", event),
        _ => ("daemon", kind),
    }
}

/// The event's own data, with the names that clients use.
fn data(body: &str) -> Box<RawValue> {
    // In JSON the mark is escaped. Most events have none and are sent unchanged.
    let escaped = "\\u001f";
    if !body.contains(escaped)
        && let Ok(raw) = RawValue::from_string(body.to_owned())
    {
        return raw;
    }
    let value = serde_json::from_str(body).unwrap_or(Value::Null);
    serde_json::value::to_raw_value(&cleaned(value)).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Removes tenants from all names.
fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(split(&text).1.to_owned()),
        Value::Array(list) => list.into_iter().map(cleaned).collect(),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, item)| (key, cleaned(item)))
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use treadle_model::tenant::MARK;

    fn row(kind: &str, job: &str, program: Option<&str>, body: &Value) -> EventRow {
        EventRow {
            seq: 7,
            at_us: 1_000_000,
            kind: kind.into(),
            job: job.into(),
            program: program.map(Into::into),
            body: body.to_string(),
        }
    }

    fn body(message: &Message) -> Value {
        serde_json::from_slice(&message.body).expect("JSON")
    }

    #[test]
    fn names_are_those_of_clients() {
        let inside = |name: &str| format!("{MARK}acme{MARK}{name}");
        let data = json!({"event": "step_finished", "program": inside("p/1")});
        let row = row("step_finished", &inside("m.1"), Some(&inside("p/1")), &data);
        let message = message(&row);
        assert_eq!(message.key.as_str(), "acme.m%2E1.step.finished");
        assert_eq!(message.attributes.source, "/treadle/acme/m.1");
        assert_eq!(message.attributes.kind, "treadle.step.finished");
        assert_eq!(message.attributes.subject, "p/1");
        assert_eq!(message.attributes.time, "1970-01-01T00:00:01.000000Z");
        let expected = json!({
            "seq": 7, "at_us": 1_000_000, "tenant": "acme", "job": "m.1", "program": "p/1",
            "entity": "step", "event": "finished",
            "data": {"event": "step_finished", "program": "p/1"},
        });
        assert_eq!(body(&message), expected);
    }

    #[test]
    fn every_kind_is_about_something() {
        for (kind, key) in [
            ("program_released", "default.default.program.released"),
            (
                "worker_capacity_read",
                "default.default.worker.capacity_read",
            ),
            ("action_started", "default.default.action.started"),
            ("gateway_lost", "default.default.gateway.lost"),
            ("policy_answered", "default.default.policy.answered"),
            ("configured", "default.default.daemon.configured"),
            ("timer_fired", "default.default.daemon.timer_fired"),
            ("daemon_restarted", "default.default.daemon.restarted"),
            ("record_refused", "default.default.daemon.record_refused"),
            ("job_declared", "default.default.training.job_declared"),
            ("step_captured", "default.default.training.step_captured"),
            ("rolled_back", "default.default.training.rolled_back"),
            ("weights_published", "default.default.weights.published"),
        ] {
            let row = row(kind, "default", None, &json!({"event": kind}));
            let message = message(&row);
            assert_eq!(message.key.as_str(), key);
            assert_eq!(body(&message)["program"], Value::Null);
        }
    }

    #[test]
    fn an_event_that_is_too_large_goes_without_its_data() {
        let large = json!("x".repeat(BODY_BYTES_MAX));
        let row = row("step_arrived", "j", Some("p"), &large);
        let message = message(&row);
        assert!(message.body.len() < FRAME_BYTES_MAX);
        assert_eq!(body(&message)["data"], Value::Null);
    }
}
