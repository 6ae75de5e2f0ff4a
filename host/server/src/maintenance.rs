//! Periodic maintenance: records bindings that an evaluator changed on its own, and what policies
//! have stored.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_auth::{Auth, Change};
use treadle_model::tenant::{DEFAULT_TENANT, MARK, Tenant};
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
    // Whose binding it is: others are not shown which policies a tenant has.
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
