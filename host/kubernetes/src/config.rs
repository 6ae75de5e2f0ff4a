//! The operator's configuration of the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The operator's configuration of the cluster.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The kubeconfig; if absent, `$KUBECONFIG`, `~/.kube/config`, or, in a pod, its service
    /// account.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; the current one if absent.
    pub context: Option<String>,
    /// The namespace of the pods; that of the context if absent.
    pub namespace: Option<String>,
    /// Container images by the image names of sandboxes.
    pub images: BTreeMap<String, String>,
    /// The runtime class of the pods.
    pub runtime_class: Option<String>,
    /// Whether root inside is an unprivileged user on the pod's machine.
    pub user_namespaces: bool,
    /// CPU request of a pod, in thousandths of a core.
    pub cpu_request_millis: u64,
    /// CPU limit of a pod, in thousandths of a core.
    pub cpu_limit_millis: u64,
    /// Default memory of a sandbox.
    pub memory_bytes: u64,
    /// Disk limit of a pod.
    pub disk_bytes_max: u64,
    /// Timeout for a pod to become ready.
    pub ready_max: Duration,
    /// Default lifetime of a sandbox.
    pub ttl: Duration,
    /// Maximum lifetime of a pod, even if its sandbox is extended.
    pub lifetime_max: Duration,
    /// This agent's folder.
    pub folder: PathBuf,
}
