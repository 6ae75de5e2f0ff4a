//! Which daemons there are, and which of them schedules what.

use super::endpoint::{Endpoint, get};
use super::signature::Answer;
use super::store_failed;
use crate::app::App;
use axum::extract::State;
use axum::handler::Handler;
use axum::response::Json;
use serde::Serialize;
use treadle_auth::permissions::VIEW;
use treadle_config::Role;
use treadle_store::{Store, StoreError};
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![endpoint(show)]
}

/// The endpoint, with the handler of a daemon that is alone or of one among others.
pub(crate) fn endpoint<H, T, A, S>(handler: H) -> Endpoint<S>
where
    H: Handler<T, S> + super::signature::Signature<A>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    get("/api/v1/cluster", VIEW, handler)
        .summary("The daemon that schedules each shard, and its epoch")
}

/// A daemon and the shards that it knows.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cluster {
    /// What it does beside others: single, all or gateway.
    #[schema(value_type = String)]
    pub(crate) role: Role,
    /// Its name, if it is one among others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Parts of the jobs.
    pub(crate) shards: Vec<ShardView>,
}

/// A part of the jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct ShardView {
    /// Its name.
    shard: String,
    /// Whether this daemon schedules it.
    here: bool,
    /// Which daemon does, if any.
    scheduler: Option<SchedulerView>,
}

/// A daemon that schedules.
#[derive(Serialize, ToSchema)]
struct SchedulerView {
    /// Its name.
    name: String,
    /// Where others reach it.
    url: String,
    /// Its term; each takeover starts a greater one.
    epoch: u64,
    /// Since when it schedules, in microseconds since 1970.
    since_us: u64,
    /// How long ago it was last seen.
    silent_ms: u64,
}

async fn show(State(app): State<App>) -> Answer<Cluster> {
    let shard = shard(&*app.store, "main", true).await;
    Ok(Json(Cluster {
        role: Role::Single,
        name: None,
        shards: vec![shard.map_err(|error| store_failed(&error))?],
    }))
}

/// A shard and who schedules it; `here` if this daemon does.
pub(crate) async fn shard(
    store: &dyn Store,
    name: &str,
    here: bool,
) -> Result<ShardView, StoreError> {
    let leader = store.leader().await?;
    Ok(ShardView {
        shard: name.to_owned(),
        here,
        scheduler: leader.map(|leader| SchedulerView {
            name: leader.name,
            url: leader.url,
            epoch: leader.epoch,
            since_us: leader.since_us,
            silent_ms: leader.now_us.saturating_sub(leader.seen_us) / 1_000,
        }),
    })
}
