//! Periodic maintenance: stores bindings that the evaluator changed itself, and the stored state of
//! policies.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_auth::{Auth, Change};
use treadle_model::tenant::{DEFAULT_TENANT, MARK, Tenant};
use treadle_policy::evaluator::Notice;
use treadle_registry::PluginRegistry;

/// Interval of saving policies' state.
const SAVE_PAUSE: Duration = Duration::from_mins(1);
/// Pause before storing a notice is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Stores notices as they arrive, and policies' states periodically, forever.
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
                    tracing::warn!(%error, "stored data of policies could not be saved");
                }
            }
        }
    }
}

async fn note(registry: &PluginRegistry, auth: &Auth, notice: &Notice) {
    while let Err(error) = registry.record_failure(notice).await {
        tracing::error!(%error, "the end of a binding could not be stored");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    // The binding's tenant, since others may not see a tenant's policies.
    let tenant = match notice.scope.tenant_prefix().trim_matches(MARK) {
        "" => DEFAULT_TENANT,
        tenant => tenant,
    };
    let scope = Tenant::new(tenant);
    let scope = scope.outside(notice.scope.as_str());
    let scope = scope.unwrap_or(notice.scope.as_str());
    let target = format!("{}/{scope}", notice.world);
    let before = json!({"policy": notice.policy});
    let after = json!({
        "policy": notice.after, "kind": notice.kind, "reason": notice.reason,
    });
    let change = Change {
        action: "binding.given_up",
        target: &target,
        before,
        after,
    };
    auth.audit.note_as(tenant, "treadle", "", change).await;
}
