//! Periodic maintenance: records bindings that an evaluator changed on its own, and what policies
//! have stored.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_auth::Auth;
use treadle_policy::evaluator::Notice;
use treadle_registry::PluginRegistry;

/// Pause between two savings of what policies have stored.
const SAVE_PAUSE: Duration = Duration::from_mins(1);
/// Pause before a notice is written down again that could not be.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Writes down notices as they come, and states from time to time; for ever.
pub(crate) async fn keep_up(
    registry: Arc<PluginRegistry>,
    auth: Arc<Auth>,
    mut notices: UnboundedReceiver<Notice>,
) {
    let mut saving = tokio::time::interval(SAVE_PAUSE);
    saving.tick().await;
    loop {
        tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => note(&registry, &auth, &notice).await,
                None => return,
            },
            _ = saving.tick() => {
                if let Err(error) = registry.save_states().await {
                    tracing::warn!(%error, "what policies have stored could not be saved");
                }
            }
        }
    }
}

async fn note(registry: &PluginRegistry, auth: &Auth, notice: &Notice) {
    while let Err(error) = registry.record_failure(notice).await {
        tracing::error!(%error, "a binding that was given up could not be written down");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    let target = format!("{}/{}", notice.world, notice.scope.as_str());
    let before = json!({"policy": notice.policy});
    let after = json!({
        "policy": notice.after, "kind": notice.kind, "reason": notice.reason,
    });
    auth.audit
        .note_own("binding.given_up", &target, before, after)
        .await;
}
