//! Requests and answers of steps, where they are kept.

use super::names::InPath;
use super::{ok, store_failed};
use crate::app::App;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_store::BodyRow;

/// `GET /v1/programs/{program}/steps/{step}/bodies`: what `payloads.keep` has kept of a step.
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Path((_, step)): Path<(String, u64)>,
) -> Response {
    let key = caller.principal.inside(&program);
    match app.store.bodies(&key, step).await {
        Ok(rows) => ok(json!({"bodies": rows.iter().map(body_json).collect::<Vec<_>>()})),
        Err(error) => store_failed(&error),
    }
}

/// Every body that the gateway passes on is text; one that is not is shown as far as it is.
fn body_json(row: &BodyRow) -> Value {
    json!({
        "kind": row.kind,
        "at_us": row.at_us,
        "bytes": row.body.len(),
        "text": String::from_utf8_lossy(&row.body),
    })
}
