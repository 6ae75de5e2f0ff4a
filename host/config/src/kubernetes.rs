//! `[kubernetes]`: sandboxes as pods of a cluster, in place of namespaces of this machine.

use std::collections::BTreeMap;

use super::section::section;
use super::{Config, ConfigError, conflict};

/// The image of sandboxes that ask for none.
const SYSTEM: &str = "system";
/// How a key of images is corrected.
const REMEDY: &str = "write it as [\"system=debian:13\", \"swe-7=registry.example/swe:7\"]";

section! {
    /// Sandboxes as pods of a Kubernetes cluster (docs/sandboxes.md#on-kubernetes), of a daemon with `sandboxes.enabled` or of the agent of a node. Memory, disk, time and number of them are in `[sandboxes]`.
    KubernetesSection in "kubernetes" {
        /// Whether sandboxes are pods. This machine then needs neither root nor cgroups for them.
        enabled: bool = false, "";
        /// The file that says how the cluster is reached. Where empty: `$KUBECONFIG`, `~/.kube/config`, or, in a pod, its service account.
        kubeconfig: String = String::new(), "";
        /// Which context of that file; its current one where empty.
        context: String = String::new(), "";
        /// The namespace of the pods; that of the context where empty.
        namespace: String = String::new(), "";
        /// Container images by the names that sandboxes have for them, as `name=reference`. `system` is that of sandboxes that ask for none. What is not named here can be asked for by its reference.
        images: Vec<String> = Vec::new(), "";
        /// The runtime class of the pods, such as one of gVisor or Kata Containers; the cluster's default where empty.
        runtime_class: String = String::new(), "";
        /// Whether root in a pod is nobody on its machine (`hostUsers: false`). The cluster must support user namespaces.
        user_namespaces: bool = false, "";
        /// What the cluster's scheduler sets aside for a pod.
        cpu_request_millis: u64 = 100, "thousandths of a core", 1 ..= 1_000_000;
        /// What a pod may use, however many cores its commands were granted.
        cpu_limit_millis: u64 = 2_000, "thousandths of a core", 1 ..= 1_000_000;
        /// How long a pod may take until it is ready, with its image's download. Its sandbox has failed then.
        ready_s_max: u64 = 300, "seconds", 1 ..= 86_400;
        /// When a pod ends by itself (`activeDeadlineSeconds`), whatever extends its sandbox's time, and though no daemon be left; after the sandbox's own `ttl_s` if that is more.
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
            let problem = "is true, but there are no sandboxes to be pods".to_owned();
            let remedy = "set sandboxes.enabled = true too";
            return Err(conflict("kubernetes.enabled", problem, remedy));
        }
        for image in &self.images {
            let parts = image.split_once('=');
            if parts.is_none_or(|(name, image)| name.trim().is_empty() || image.trim().is_empty()) {
                let problem = format!("has `{image}`, which is no `name=reference`");
                return Err(conflict("kubernetes.images", problem, REMEDY));
            }
        }
        if self.enabled && !self.images().contains_key(SYSTEM) {
            let problem = "has no `system=`, the image of sandboxes that ask for none".to_owned();
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
    fn what_is_wrong_is_named_with_its_remedy() {
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
