//! Which daemons there are, and which of them schedules what.

use super::{ok, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use treadle_store::{LeaderRow, Store, StoreError};

/// `GET /v1/cluster` of a daemon that is alone with its store.
pub(super) async fn show(State(app): State<App>) -> Response {
    match shard(&*app.store, "main", true).await {
        Ok(shard) => ok(json!({"role": "single", "shards": [shard]})),
        Err(error) => store_failed(&error),
    }
}

/// A shard and who schedules it; `here` if this daemon does.
pub(crate) async fn shard(store: &dyn Store, name: &str, here: bool) -> Result<Value, StoreError> {
    let leader = store.leader().await?;
    let told = |leader: LeaderRow| {
        json!({
            "name": leader.name,
            "url": leader.url,
            "epoch": leader.epoch,
            "since_us": leader.since_us,
            "silent_ms": leader.now_us.saturating_sub(leader.seen_us) / 1_000,
        })
    };
    Ok(json!({"shard": name, "here": here, "scheduler": leader.map(told)}))
}
