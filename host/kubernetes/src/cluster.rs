//! The state shared by all pods of an agent: the API server, and the owner label.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use treadle_sandbox::{SYSTEM_IMAGE, SandboxError};

use crate::client::{Failure, asked};
use crate::config::KubernetesConfig;
use crate::copies::Copies;
use crate::manifest::OWNER;
use crate::statuses::Statuses;

/// Why pods can't be paused, forked or kept as a snapshot.
pub(crate) const PAUSES: &str = "sandboxes on Kubernetes can't be paused, resumed after their time, \
     forked or kept as a snapshot; make another sandbox, or use a node without \
     `kubernetes.enabled`";
/// Maximum length of the reference of a container image.
const IMAGE_BYTES_MAX: usize = 512;
/// Interval of deleting orphaned pods, and the number deleted at once.
const SWEEP: (Duration, usize) = (Duration::from_millis(200), 8);

/// The state shared by all pods of an agent.
pub(crate) struct Cluster {
    pub(crate) api: Api<Pod>,
    pub(crate) config: KubernetesConfig,
    /// The value of the owner label of this agent's pods.
    pub(crate) owner: String,
    pub(crate) statuses: Arc<Statuses>,
    pub(crate) copies: Arc<Copies>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.debug_struct("Cluster")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn selector(&self) -> String {
        format!("{OWNER}={}", self.owner)
    }

    /// The container image of a sandbox's image: from the configuration, or its own reference.
    pub(crate) fn image(&self, name: &str) -> Result<String, SandboxError> {
        let name = if name.is_empty() { SYSTEM_IMAGE } else { name };
        if let Some(image) = self.config.images.get(name) {
            return Ok(image.clone());
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
        let is_reference = name.contains(['/', ':', '@'])
            && name.len() <= IMAGE_BYTES_MAX
            && name.bytes().all(allowed);
        if is_reference {
            return Ok(name.to_owned());
        }
        Err(SandboxError::ImageUnknown(name.to_owned()))
    }

    /// Deletes a pod without a grace period, if it exists.
    pub(crate) async fn delete(&self, pod: &str) -> Result<(), Failure> {
        let now = DeleteParams::default().grace_period(0);
        match asked(self.api.delete(pod, &now)).await {
            Ok(_) | Err(Failure::NotFound) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Deletes orphaned pods periodically, with retries.
    pub(crate) async fn sweep(&self) {
        let orphans = &self.statuses.orphans;
        loop {
            tokio::time::sleep(SWEEP.0).await;
            let deleting = stream::iter(orphans.due()).for_each_concurrent(SWEEP.1, async |pod| {
                match self.delete(&pod).await {
                    Ok(()) => {
                        tracing::info!(%pod, "deleted an orphaned pod");
                        orphans.deleted(&pod);
                    }
                    Err(error) => {
                        tracing::warn!(%pod, %error, "could not delete a pod; trying again");
                        orphans.failed(&pod);
                    }
                }
            });
            deleting.await;
        }
    }
}
