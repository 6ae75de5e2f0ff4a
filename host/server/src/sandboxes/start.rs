//! Bringing up sandboxes.

use super::Tenants;
use crate::machine;
use crate::start_error::StartError;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use treadle_config::Config;
use treadle_kubernetes::{Kubernetes, KubernetesConfig};
use treadle_sandbox::{SandboxConfig, Sandboxes};
use treadle_store::Location;

/// What makes the daemon's binary keep a sandbox.
pub const KEEP_SUBCOMMAND: &str = "keep-sandbox";
/// Where sandboxes are without a store in a file.
const FOLDER: &str = "/var/lib/treadle";
/// Pods that are waited for at once: that takes nothing of this machine.
const PODS_MAX: usize = 256;

/// Starts them. Their names end with the mark.
pub(crate) async fn start(
    config: &Config,
    mark: &str,
    tenants: Tenants,
) -> Result<Sandboxes, StartError> {
    let settings = SandboxConfig {
        shares: Arc::new(tenants),
        ..settings(config, mark)
    };
    if !config.kubernetes.enabled {
        return Ok(Sandboxes::start(settings).await?);
    }
    let settings = SandboxConfig {
        creations_max: PODS_MAX,
        ..settings
    };
    let cluster = Kubernetes::open(cluster(config, settings.folder.clone())).await?;
    Ok(Sandboxes::start_on(Arc::new(cluster), settings).await?)
}

/// What the configuration says of sandboxes on this machine.
pub(super) fn settings(config: &Config, mark: &str) -> SandboxConfig {
    let section = &config.sandboxes;
    let own = || std::env::current_exe().unwrap_or_else(|_| "treadle".into());
    let program = machine::path(&section.keeper).unwrap_or_else(own);
    let program = (program, vec![KEEP_SUBCOMMAND.into()]);
    let defaults = SandboxConfig::new(program, folder(config), treadle_actions::cores());
    SandboxConfig {
        cgroup: machine::folder(&config.actions.cgroup),
        sandboxes_max: section.sandboxes_max,
        memory_bytes: section.memory_bytes,
        processes_max: section.processes_max,
        disk_bytes_max: section.disk_bytes_max,
        images_bytes_max: section.images_bytes_max,
        copies_bytes_max: section.copies_bytes_max(),
        files_bytes_max: section.files_bytes_max,
        uid: section.uid,
        ttl: Duration::from_secs(section.ttl_s),
        mark: mark.to_owned(),
        ..defaults
    }
}

/// Where sandboxes are.
pub(super) fn folder(config: &Config) -> PathBuf {
    let given = machine::folder(&config.sandboxes.folder);
    given.unwrap_or_else(|| match config.store.location() {
        Location::File(path) => {
            let mut name = path.into_os_string();
            name.push(".sandboxes");
            name.into()
        }
        Location::Memory | Location::Postgres(_) => {
            PathBuf::from(FOLDER).join(format!("sandboxes-{}", config.server.listen.port()))
        }
    })
}

/// What the configuration says of the cluster.
fn cluster(config: &Config, folder: PathBuf) -> KubernetesConfig {
    let (section, sandboxes) = (&config.kubernetes, &config.sandboxes);
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    KubernetesConfig {
        kubeconfig: given(&section.kubeconfig).map(PathBuf::from),
        context: given(&section.context),
        namespace: given(&section.namespace),
        images: section.images(),
        runtime_class: given(&section.runtime_class),
        user_namespaces: section.user_namespaces,
        cpu_request_millis: section.cpu_request_millis,
        cpu_limit_millis: section.cpu_limit_millis,
        memory_bytes: sandboxes.memory_bytes,
        disk_bytes_max: sandboxes.disk_bytes_max,
        ready_max: Duration::from_secs(section.ready_s_max),
        ttl: Duration::from_secs(sandboxes.ttl_s),
        lifetime_max: Duration::from_secs(section.lifetime_s_max),
        folder,
    }
}

/// Whether the cluster of the configuration can be reached: what was found, or what is missing.
///
/// # Errors
/// What is missing, and the remedy.
pub async fn look_at_cluster(config: &Config) -> Result<String, String> {
    let found = Kubernetes::look(&cluster(config, PathBuf::new())).await;
    found.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cluster_that_can_not_be_found_is_told_at_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.sandboxes.folder = folder.path().display().to_string();
        config.kubernetes.enabled = true;
        config.kubernetes.images = vec!["system=debian:13".to_owned()];
        config.kubernetes.kubeconfig = "/no/such/kubeconfig".to_owned();
        let failed = start(&config, "", Tenants::let_in())
            .await
            .err()
            .map(|error| error.to_string());
        let told = failed.expect("no cluster");
        assert!(told.contains("kubernetes.kubeconfig"), "{told}");
        assert!(told.contains("/no/such/kubeconfig"), "{told}");
        let looked = look_at_cluster(&config).await.expect_err("no cluster");
        assert!(told.starts_with(&looked), "{looked}");
    }
}
