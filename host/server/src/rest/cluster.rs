//! The daemons of a cluster and the shards that they schedule.

use super::Endpoint;
use super::store_failed;
use crate::app::App;
use axum::extract::State;
use axum::handler::Handler;
use axum::response::Json;
use serde::Serialize;
use treadle_auth::permissions::VIEW;
use treadle_config::Role;
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_store::StoreError;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![endpoint(show)]
}

/// The endpoint, with the handler of a single daemon or of a member of a cluster.
pub(crate) fn endpoint<H, T, A, S>(handler: H) -> treadle_endpoints::Endpoint<S>
where
    H: Handler<T, S> + treadle_endpoints::signature::Signature<A>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    get("/api/v1/cluster", VIEW, handler)
        .summary("The daemon that schedules each shard, and its epoch")
}

/// This daemon and all shards.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cluster {
    /// Its role in the cluster: single, all or gateway.
    #[schema(value_type = String)]
    pub(crate) role: Role,
    /// Its name, if it is part of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The shards.
    pub(crate) shards: Vec<ShardView>,
}

/// A shard: a part of the jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct ShardView {
    /// Its name.
    shard: String,
    /// Whether this daemon schedules it.
    here: bool,
    /// The daemon that schedules it, if any.
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

/// A shard and its scheduler; `here` if that is this daemon.
pub(crate) async fn shard(
    store: &dyn treadle_store::Cluster,
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
