//! What is computed of members once they ended: samples from captured steps, and rewards.

use crate::app::TrainingApp;
use crate::captured::assemble_member;
use crate::rewards::Rewards;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use treadle_registry::PluginRegistry;
use treadle_runs::actions::Actions;
use treadle_scheduler::MemberWork;

/// Samples that are assembled at once.
const SAMPLES_AT_ONCE: usize = 2;

/// Computes what members want until this is dropped.
pub async fn work_on_members(
    app: TrainingApp,
    actions: Option<Arc<Actions>>,
    policies: Arc<PluginRegistry>,
    mut work: UnboundedReceiver<MemberWork>,
) {
    let mut rewards = Rewards::of(app.clone(), actions, policies);
    let samples = Arc::new(Semaphore::new(SAMPLES_AT_ONCE));
    let mut tasks = JoinSet::new();
    while let Some(work) = work.recv().await {
        while tasks.try_join_next().is_some() {}
        match work {
            MemberWork::Score(member) => {
                tasks.spawn(rewards.of_member(member));
            }
            MemberWork::Assemble(member) => {
                let (app, room) = (app.clone(), samples.clone());
                tasks.spawn(async move { assemble_member(&app, &member, &room).await });
            }
        }
    }
}
