//! What KV memory is used for.

use super::{ok, stopped};
use crate::app::App;
use crate::memory::MemoryUses;
use axum::extract::State;
use axum::response::Response;
use treadle_auth::Caller;

/// `GET /v1/memory`: token-seconds by use, per worker and per job of the
/// caller's tenant.
pub(super) async fn show(State(app): State<App>, caller: Caller) -> Response {
    match app.driver.read(MemoryUses::read).await {
        Ok(uses) => ok(uses.shown_to(&caller.principal).to_json()),
        Err(_) => stopped(),
    }
}
