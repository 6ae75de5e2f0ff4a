//! Tool runners' notices about their actions, as in `POST /api/v1/actions`, over the broker.
//!
//! A redelivered notice has no effect, so that ids need not be stored.

use super::commands::{Consumer, Failure};
use super::effects;
use crate::app::App;
use crate::commands::ActionReport;
use serde_json::{Map, Value};
use treadle_outbox::Outcome;

/// Fields of a notice.
const FIELDS: [&str; 8] = [
    "event",
    "tenant",
    "job",
    "program_id",
    "program",
    "action_id",
    "tool",
    "ok",
];

/// Fields of a notice that name its owner, beside the program.
const ADDRESS: [&str; 2] = ["tenant", "job"];

/// Consumes notices until stopped.
pub(super) async fn run(mut consumer: Consumer) {
    while let Some(delivery) = consumer.next().await {
        let settled = match record(&consumer.app, &delivery.body).await {
            Ok(()) => {
                consumer.status.settled(Outcome::Done);
                delivery.ack().await
            }
            Err(Failure::Refused(reason)) => {
                tracing::warn!(id = delivery.id, reason, "a notice is refused");
                consumer.status.settled(Outcome::Refused);
                delivery.reject(&reason).await
            }
            // Notices don't use the store, so the scheduler has stopped.
            Err(Failure::Unable(_) | Failure::Over) => return,
        };
        if let Err(cause) = settled {
            tracing::debug!(%cause, "a notice was not settled");
        }
    }
}

/// Journals a notice.
async fn record(app: &App, body: &[u8]) -> Result<(), Failure> {
    let mut notice = parse(body).map_err(Failure::Refused)?;
    let text = |notice: &Map<String, Value>, field| {
        let value = notice.get(field).and_then(Value::as_str);
        value.map(str::to_owned)
    };
    let tenant = effects::tenant_of(app, text(&notice, "tenant").as_deref())?;
    if let Some(program) = notice.remove("program") {
        notice.insert("program_id".to_owned(), program);
    }
    let program = text(&notice, "program_id").unwrap_or_default();
    let program = effects::name("program", &program)?;
    if let Some(job) = text(&notice, "job") {
        let (key, wanted) = (tenant.inside(&program), effects::name("job", &job)?);
        let wanted = tenant.inside(&wanted).into_owned();
        effects::check_job(app, &key, wanted, &program, &job).await?;
    }
    notice.retain(|field, _| !ADDRESS.contains(&field.as_str()));
    let report: ActionReport = serde_json::from_value(Value::Object(notice))
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let event = report
        .event(&tenant)
        .map_err(|error| Failure::Refused(error.message))?;
    Ok(app.driver.event_committed(event).await?)
}

/// The fields of a notice, or why it is invalid.
fn parse(body: &[u8]) -> Result<Map<String, Value>, String> {
    let notice: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        format!("the body is not a JSON object ({error}); send {{\"event\": \"started\", ...}}")
    })?;
    match notice.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        Some(key) => Err(format!(
            "unknown field `{key}`; a notice has {}",
            FIELDS.join(", ")
        )),
        None => Ok(notice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_notice_is_refused_with_a_reason() {
        assert!(parse(br#"{"event":"started","program":"p"}"#).is_ok());
        for (body, words) in [
            ("{", "not a JSON object"),
            (r#"{"who":1}"#, "unknown field `who`"),
        ] {
            let reason = parse(body.as_bytes()).expect_err("it is refused");
            assert!(reason.contains(words), "{reason}");
        }
    }
}
