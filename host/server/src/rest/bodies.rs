//! Stored requests and responses of steps.

use super::Endpoint;
use super::store_failed;
use crate::app::App;
use axum::extract::State;
use axum::response::Json;
use serde::Serialize;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::{InPath, LastInPath};
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_store::BodyRow;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let path = "/api/v1/programs/{program}/steps/{step}/bodies";
    vec![
        get(path, VIEW, show)
            .summary("A step's request and response, if `payloads.keep` stores them"),
    ]
}

/// The stored bodies of a step.
#[derive(Serialize, ToSchema)]
struct Bodies {
    /// Its request, its response, or both.
    bodies: Vec<KeptBody>,
}

/// A stored request or response.
#[derive(Serialize, ToSchema)]
struct KeptBody {
    /// request or answer.
    kind: String,
    /// When it was stored, in microseconds since 1970.
    at_us: u64,
    /// Its length.
    bytes: usize,
    /// The body. Bytes that are not UTF-8 are replaced.
    text: String,
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    LastInPath(step): LastInPath<u64>,
) -> Answer<Bodies> {
    let key = caller.principal.inside(&program);
    let rows = app.store.bodies(&key, step).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let shown = |row: &BodyRow| KeptBody {
        kind: row.kind.clone(),
        at_us: row.at_us,
        bytes: row.body.len(),
        text: String::from_utf8_lossy(&row.body).into_owned(),
    };
    Ok(Json(Bodies {
        bodies: rows.iter().map(shown).collect(),
    }))
}
