//! Training runs of a daemon that schedules.

use std::sync::Arc;
use treadle_auth::Auth;
use treadle_config::Config;
use treadle_runs::actions::Actions;
use treadle_scheduler::DriverHandle;
use treadle_store::Store;
use treadle_training::{TrainingApp, compute_rewards};

/// Computes rewards of training runs if the daemon runs actions.
pub(super) async fn rewards(training: TrainingApp, actions: Option<Arc<Actions>>) {
    if let (Some(actions), Some(wanted)) = (actions, training.driver.take_scores()) {
        compute_rewards(training, actions, wanted).await;
    }
}

/// Training runs of this scheduler and store.
pub(super) fn training(
    config: &Config,
    driver: &DriverHandle,
    store: &Arc<dyn Store>,
    auth: &Arc<Auth>,
) -> TrainingApp {
    let bytes_max = config.training.bytes_max;
    let runs_actions = config.actions.enabled;
    TrainingApp::new(
        driver.clone(),
        store.clone(),
        auth.clone(),
        runs_actions,
        bytes_max,
    )
}
