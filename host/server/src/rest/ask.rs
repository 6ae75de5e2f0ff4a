//! Questions to the policies that scheduling does not wait for.

use super::names::name;
use super::{object, ok, refuse};
use crate::app::App;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_policy::calls::RecordedCall;
use treadle_registry::AskError;
use treadle_wire::ErrorCode;

/// `POST /v1/ask {"world", "function", "columns", "job"?}`: the answer of the
/// policy that is bound for the job, or of the built-in default. `world` is
/// prediction, allocation or reward; functions and columns are those of the
/// contract, with underscores in the names of columns. Rows by the thousand are one
/// question, not a thousand.
pub(super) async fn ask(State(app): State<App>, caller: Caller, body: Bytes) -> Response {
    let mut body = match object(&body) {
        Ok(body) => body,
        Err(response) => return response,
    };
    let principal = &caller.principal;
    let job = match body.remove("job") {
        // No job of the tenant: what is bound for all of them answers.
        None | Some(Value::Null) => principal.tenant.tenant.prefix().to_owned(),
        Some(Value::String(job)) => match name("job", job) {
            Ok(job) => principal.inside(&job),
            Err(response) => return response,
        },
        Some(_) => return refuse(ErrorCode::InvalidField, "`job` must be a job's name"),
    };
    let call: RecordedCall = match serde_json::from_value(Value::Object(body)) {
        Ok(call) => call,
        Err(error) => {
            let message = format!("{error}; send world, function and columns");
            return refuse(ErrorCode::InvalidField, message);
        }
    };
    match app.policies.ask(job, call).await {
        Ok(asked) => ok(json!({"policy": asked.policy, "answer": asked.answer})),
        Err(error @ (AskError::BadCall(_) | AskError::InPlace(_))) => {
            refuse(ErrorCode::InvalidField, error.to_string())
        }
        Err(error @ AskError::NoAnswer(_)) => refuse(ErrorCode::InvalidField, error.to_string()),
        Err(error @ AskError::EndedEarly) => refuse(ErrorCode::Internal, error.to_string()),
    }
}
