//! `[kubernetes]`: sandboxes as pods of a cluster, instead of namespaces on this machine.

use std::collections::BTreeMap;

use super::section::section;
use super::{Config, ConfigError, conflict};

/// The image of sandboxes that request none.
const SYSTEM: &str = "system";
/// The remedy for an invalid entry of `kubernetes.images`.
const REMEDY: &str = "write it as [\"system=debian:13\", \"swe-7=registry.example/swe:7\"]";

section! {
    /// Sandboxes as pods of a Kubernetes cluster (docs/sandboxes.md#on-kubernetes), for a daemon with `sandboxes.enabled` or for the agent of a node. Limits on their memory, disk, time and number are in `[sandboxes]`.
    KubernetesSection in "kubernetes" {
        /// Whether sandboxes are pods. This machine then needs neither root nor cgroups for them.
        enabled: bool = false, "";
        /// Kubeconfig file for the cluster. If empty: `$KUBECONFIG`, `~/.kube/config`, or, in a pod, its service account.
        kubeconfig: String = String::new(), "";
        /// Context in that file; the current context if empty.
        context: String = String::new(), "";
        /// Namespace of the pods; the context's namespace if empty.
        namespace: String = String::new(), "";
        /// Container images as `name=reference`, where `name` is the image name that sandboxes use. `system` is the image of sandboxes that request none. Other images can be requested by reference.
        images: Vec<String> = Vec::new(), "";
        /// Runtime class of the pods, such as one of gVisor or Kata Containers; the cluster's default if empty.
        runtime_class: String = String::new(), "";
        /// Whether root in a pod is an unprivileged user on its machine (`hostUsers: false`). The cluster must support user namespaces.
        user_namespaces: bool = false, "";
        /// CPU request of a pod: what the cluster's scheduler reserves for it.
        cpu_request_millis: u64 = 100, "thousandths of a core", 1 ..= 1_000_000;
        /// CPU limit of a pod, independent of the cores granted to its commands.
        cpu_limit_millis: u64 = 2_000, "thousandths of a core", 1 ..= 1_000_000;
        /// How long a pod may take to become ready, including the download of its image. After that its sandbox fails.
        ready_s_max: u64 = 300, "seconds", 1 ..= 86_400;
        /// Lifetime of a pod (`activeDeadlineSeconds`). It ends the pod even if the sandbox's time is extended or no daemon is left. The sandbox's own `ttl_s` applies instead if it is longer.
        lifetime_s_max: u64 = 86_400, "seconds", 60 ..= 31_536_000;
    }
}

impl KubernetesSection {
    /// Container images by name.
    pub fn images(&self) -> BTreeMap<String, String> {
        let pairs = self.images.iter().filter_map(|image| image.split_once('='));
        pairs
            .map(|(name, image)| (name.trim().to_owned(), image.trim().to_owned()))
            .collect()
    }

    /// Rules across several values.
    pub(super) fn check(&self, config: &Config) -> Result<(), ConfigError> {
        let is_agent = !config.nodes.daemons.is_empty();
        if self.enabled && !config.sandboxes.enabled && !is_agent {
            let problem = "is true, but sandboxes are disabled".to_owned();
            let remedy = "also set sandboxes.enabled = true";
            return Err(conflict("kubernetes.enabled", problem, remedy));
        }
        for image in &self.images {
            let parts = image.split_once('=');
            if parts.is_none_or(|(name, image)| name.trim().is_empty() || image.trim().is_empty()) {
                let problem = format!("has `{image}`, which is not `name=reference`");
                return Err(conflict("kubernetes.images", problem, REMEDY));
            }
        }
        if self.enabled && !self.images().contains_key(SYSTEM) {
            let problem = "has no `system=`, the image of sandboxes that request none".to_owned();
            return Err(conflict("kubernetes.images", problem, REMEDY));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(sets: &[&str]) -> Result<Config, String> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let none = std::iter::empty();
        Config::load(None, none, &sets).map_err(|error| error.to_string())
    }

    #[test]
    fn errors_name_the_problem_and_the_remedy() {
        let actions = "actions.enabled=true";
        let on = "kubernetes.enabled=true";
        let alone = load(&[actions, on]).expect_err("no sandboxes");
        assert!(alone.contains("kubernetes.enabled") && alone.contains("sandboxes.enabled = true"));
        let without = load(&[actions, "sandboxes.enabled=true", on]).expect_err("no image");
        assert!(without.contains("kubernetes.images") && without.contains("system="));
        let image = "kubernetes.images=[\"system\"]";
        let no_pair = load(&[image]).expect_err("no pair");
        assert!(no_pair.contains("name=reference"), "{no_pair}");

        let image = "kubernetes.images=[\"system=debian:13\", \"swe=r.example/swe@sha256:a=\"]";
        let config = load(&[actions, "sandboxes.enabled=true", on, image]).expect("all is there");
        let images = config.kubernetes.images();
        assert_eq!(images["system"], "debian:13");
        assert_eq!(images["swe"], "r.example/swe@sha256:a=");
    }
}
