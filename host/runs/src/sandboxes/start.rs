//! Starting the sandboxes of a daemon or a node.

use super::Tenants;
use crate::actions::actions_folder;
use crate::machine;
use crate::start_error::StartError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use treadle_config::Config;
use treadle_kubernetes::{Kubernetes, KubernetesConfig};
use treadle_sandbox::{ImageSources, SandboxConfig, Sandboxes};
use treadle_store::Location;

/// The subcommand with which the daemon's binary keeps a sandbox.
pub const KEEP_SUBCOMMAND: &str = "keep-sandbox";
/// The folder of sandboxes if the store is not a file.
const FOLDER: &str = "/var/lib/treadle";
/// Pods that are started concurrently, which costs this machine nothing.
const PODS_MAX: usize = 256;

/// Starts the sandboxes. Their names end with the mark.
pub async fn start(config: &Config, mark: &str, tenants: Tenants) -> Result<Sandboxes, StartError> {
    let settings = SandboxConfig {
        shares: Arc::new(tenants),
        ..settings(config, mark)
    };
    if !config.kubernetes.enabled {
        return Ok(Sandboxes::start(settings).await?);
    }
    let settings = SandboxConfig {
        creations_max: PODS_MAX,
        // Not this machine's; the cluster has room for each pod or refuses it.
        memory_bytes_all: u64::MAX,
        ..settings
    };
    let cluster = Kubernetes::open(cluster(config, settings.folder.clone())).await?;
    Ok(Sandboxes::start_on(Arc::new(cluster), settings).await?)
}

/// The settings of sandboxes on this machine.
pub(super) fn settings(config: &Config, mark: &str) -> SandboxConfig {
    let section = &config.sandboxes;
    let own = || std::env::current_exe().unwrap_or_else(|_| "treadle".into());
    let program = machine::path(&section.keeper).unwrap_or_else(own);
    let defaults = SandboxConfig::new(
        program,
        vec![KEEP_SUBCOMMAND.into()],
        folder(config),
        treadle_actions::cores(),
    );
    SandboxConfig {
        cgroup: machine::folder(&config.actions.cgroup),
        sandboxes_max: section.sandboxes_max,
        memory_bytes_all: match config.actions.memory_bytes {
            0 => machine::memory_bytes() / 4 * 3,
            most => most,
        },
        memory_bytes: section.memory_bytes,
        processes_max: section.processes_max,
        disk_bytes_max: section.disk_bytes_max,
        images_bytes_max: section.images_bytes_max,
        copies_bytes_max: section.copies_bytes_max(),
        files_bytes_max: section.files_bytes_max,
        image_sources: image_sources(config, &folder(config)),
        uid: section.uid,
        ttl: Duration::from_secs(section.ttl_s),
        mark: mark.to_owned(),
        ..defaults
    }
}

/// The folder of sandboxes.
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

/// The files of this machine that images may be imported from: the listed folders, without the
/// daemon's own files.
fn image_sources(config: &Config, folder: &Path) -> ImageSources {
    let payloads = Some(&config.payloads.location).filter(|place| *place != "table");
    let paths = [
        &config.nodes.folder,
        &config.kv.folder,
        &config.kv.slots_folder,
        &config.weights.store,
        &config.weights.folder,
        &config.tls.cert,
        &config.tls.key,
        &config.kubernetes.kubeconfig,
    ];
    let paths = paths.into_iter().chain(payloads);
    let paths = paths.filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut private = vec![folder.to_owned(), actions_folder(config)];
    private.extend(paths.chain(config.files.iter().cloned()));
    let folders = config.sandboxes.image_folders.iter();
    ImageSources {
        folders: folders.map(PathBuf::from).collect(),
        private,
        // The first token is in the same folder as the database.
        store: Some(&config.store.path)
            .filter(|path| *path != "memory")
            .map(PathBuf::from),
    }
}

/// The settings of the Kubernetes cluster.
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

/// Checks that the configured cluster can be used, and returns a description of it.
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

    #[test]
    fn nothing_of_the_daemon_s_own_becomes_an_image() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().join(path).display().to_string();
        std::fs::write(at("config.toml"), "").expect("a file");
        std::fs::write(at("secret"), "x".repeat(32)).expect("a file");
        let file = PathBuf::from(at("config.toml"));
        let secret = [format!("cluster.secret_file={}", at("secret"))];
        let mut config = Config::load(Some(&file), [], &secret).expect("a configuration");
        config.store.path = at("state/treadle.db");
        config.payloads.location = at("payloads");
        config.kv.folder = at("kv");
        config.kv.slots_folder = at("slots");
        config.actions.folder = at("markers");
        config.tls.key = at("key.pem");
        let boxes = PathBuf::from(at("boxes"));
        let sources = image_sources(&config, &boxes);
        for own in [
            "config.toml",
            "secret",
            "payloads",
            "kv",
            "slots",
            "markers",
            "key.pem",
            "boxes",
        ] {
            assert!(sources.private.contains(&PathBuf::from(at(own))), "{own}");
        }
        assert_eq!(sources.store, Some(PathBuf::from(at("state/treadle.db"))));
        // The file of the first token exists even if the store is not a file.
        config.store.url = treadle_config::Secret::new("postgres://h/d");
        assert!(image_sources(&config, &boxes).store.is_some());
        "memory".clone_into(&mut config.store.path);
        assert_eq!(image_sources(&config, &boxes).store, None);
        let is_path = |path: &PathBuf| path.as_os_str().is_empty() || path.ends_with("table");
        let bare = image_sources(&Config::default(), &boxes);
        assert!(!bare.private.iter().any(is_path) && bare.folders.is_empty());
    }

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
