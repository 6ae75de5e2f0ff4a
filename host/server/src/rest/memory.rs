//! What KV memory is used for.

use super::Endpoint;
use super::stopped;
use crate::app::App;
use crate::memory::{MemoryReport, MemoryUses};
use axum::extract::State;
use axum::response::Json;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_wire::ErrorCode;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/memory", VIEW, show)
            .summary("Uses of KV memory over time, per worker and per job of the tenant")
            .fails(&[ErrorCode::Overloaded]),
    ]
}

async fn show(State(app): State<App>, caller: Caller) -> Answer<MemoryReport> {
    let accounts = app.driver.memory_accounts().await.map_err(|_| stopped())?;
    Ok(Json(
        MemoryUses::shown_to(accounts, &caller.principal).report(),
    ))
}
