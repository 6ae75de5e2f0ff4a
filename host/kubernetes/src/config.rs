//! What an operator says of the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What an operator says of the cluster.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// How the cluster is reached; without it `$KUBECONFIG`, `~/.kube/config`, or, within a pod, its
    /// service account.
    pub kubeconfig: Option<PathBuf>,
    /// Which context of that file; its current one without it.
    pub context: Option<String>,
    /// The namespace of the pods; that of the context without it.
    pub namespace: Option<String>,
    /// Container images by the names that sandboxes have for them.
    pub images: BTreeMap<String, String>,
    /// The runtime class of the pods.
    pub runtime_class: Option<String>,
    /// Whether root inside is to be nobody on the machine that a pod is on.
    pub user_namespaces: bool,
    /// Thousandths of a core that the scheduler sets aside for a pod.
    pub cpu_request_millis: u64,
    /// Thousandths of a core that a pod may use.
    pub cpu_limit_millis: u64,
    /// Memory of a sandbox that asks for no other.
    pub memory_bytes: u64,
    /// What a pod may write to disk.
    pub disk_bytes_max: u64,
    /// How long a pod may take until it is ready.
    pub ready_max: Duration,
    /// How long a sandbox lives that says nothing else.
    pub ttl: Duration,
    /// How long a pod lives at most, whatever extends the time of its sandbox.
    pub lifetime_max: Duration,
    /// A folder of this agent's own.
    pub folder: PathBuf,
}
