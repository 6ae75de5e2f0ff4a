//! Training runs of a daemon that schedules.

use crate::app::App;
use std::sync::Arc;
use tokio::sync::watch;
use treadle_auth::Auth;
use treadle_config::{Config, Role};
use treadle_engines::LogprobKinds;
use treadle_gateway::Captures;
use treadle_http::{OpenStreams, Upstream};
use treadle_runs::weights::weight_places;
use treadle_scheduler::DriverHandle;
use treadle_store::{PayloadRoom, Store};
use treadle_training::{TrainingApp, work_on_members};
use treadle_weights::{Hosts, make_calls};

/// Computes samples and rewards of training runs, and loads weights into engines.
pub(super) async fn work_on_training(app: App, hosts: Arc<dyn Hosts>) {
    let calls = app.driver.take_weights_calls();
    let work = app.driver.take_member_work();
    let (Some(calls), Some(work)) = (calls, work) else {
        return;
    };
    let captured = app.driver.training(|state| {
        let mut jobs = state.jobs.values();
        jobs.any(|job| job.settings.captured())
    });
    if let (Ok(true), Some(captures)) = (captured.await, &app.gateway.captures) {
        captures.kinds.want();
    }
    let upstream = Upstream::over(app.node.connector().clone());
    let weights = make_calls(app.driver, upstream, hosts, calls);
    let members = work_on_members(app.training, app.actions, app.policies, work);
    tokio::join!(weights, members);
}

/// Training runs of this scheduler and store.
pub(super) fn training(
    config: &Config,
    driver: &DriverHandle,
    store: &Arc<dyn Store>,
    auth: &Arc<Auth>,
    room: Arc<PayloadRoom>,
    streams: &Arc<OpenStreams>,
    committed: &watch::Receiver<u64>,
) -> TrainingApp {
    TrainingApp {
        driver: driver.clone(),
        store: store.clone(),
        auth: auth.clone(),
        runs_actions: config.actions.enabled,
        sandboxes_only: config.sandboxes.required,
        room,
        weights: weight_places(config),
        large: Arc::default(),
        streams: streams.clone(),
        committed: committed.clone(),
        declaring: Arc::default(),
        judges: Arc::default(),
    }
}

/// Captures tokens of steps. In a cluster gateways begin no members.
pub(super) fn captures(
    config: &Config,
    driver: &DriverHandle,
    store: &Arc<dyn Store>,
    room: &Arc<PayloadRoom>,
    kinds: &Arc<LogprobKinds>,
) -> Option<Arc<Captures>> {
    let is_single = config.cluster.role == Role::Single;
    let (room, kinds) = (room.clone(), kinds.clone());
    is_single.then(|| Captures::start(driver.clone(), store.clone(), room, kinds))
}
