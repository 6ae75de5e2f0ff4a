//! A cluster as the platform of sandboxes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::task::AbortHandle;
use treadle_sandbox::{Place, Platform, SYSTEM_IMAGE, SandboxError, random_name};

use crate::client::{Failure, pods};
use crate::cluster::{Cluster, PAUSES};
use crate::config::KubernetesConfig;
use crate::manifest::{OWNER, name_of};
use crate::place::PodPlace;
use crate::statuses::{list, watch};

/// Name of the file with the value of the owner label.
const OWNER_FILE: &str = "kubernetes-owner";
/// Length of that value.
const OWNER_CHARS: usize = 20;

/// A cluster. The pods of an agent are in one namespace, and have its owner label.
#[derive(Debug)]
pub struct Kubernetes {
    cluster: Arc<Cluster>,
    watching: OnceLock<AbortHandle>,
}

impl Kubernetes {
    /// Configures the client, without connecting.
    ///
    /// # Errors
    /// An invalid configuration: the field and the remedy.
    pub async fn open(config: KubernetesConfig) -> Result<Self, SandboxError> {
        if !config.images.contains_key(SYSTEM_IMAGE) {
            let problem = format!(
                "has no `{SYSTEM_IMAGE}=`, the image of sandboxes that request none; add one such as \
                 `{SYSTEM_IMAGE}=debian:13`"
            );
            return Err(SandboxError::Value("kubernetes.images", problem));
        }
        let api = pods(&config).await?;
        let owner = owner(&config.folder).map_err(SandboxError::Machine)?;
        let cluster = Arc::new(Cluster {
            api,
            config,
            owner,
            statuses: Arc::default(),
            copies: Arc::default(),
        });
        Ok(Self {
            cluster,
            watching: OnceLock::new(),
        })
    }

    /// Checks that pods of the namespace may be listed, and changes nothing.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn look(config: &KubernetesConfig) -> Result<String, SandboxError> {
        let answered = ask(&pods(config).await?).await;
        answered.map_err(|failure| unlisted(&failure))?;
        Ok("the API server answers, and pods may be listed".to_owned())
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get() {
            watching.abort();
        }
    }
}

/// The value of this agent's owner label: the same at each start, and unique.
fn owner(folder: &Path) -> io::Result<String> {
    fs::create_dir_all(folder)?;
    let path = folder.join(OWNER_FILE);
    match fs::read_to_string(&path) {
        Ok(owner) if owner.len() == OWNER_CHARS => return Ok(owner),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let owner = random_name(OWNER_CHARS)?;
    let partial = folder.join(format!("{OWNER_FILE}.partial"));
    fs::write(&partial, &owner)?;
    fs::File::open(&partial)?.sync_all()?;
    fs::rename(partial, path)?;
    Ok(owner)
}

#[async_trait]
impl Platform for Kubernetes {
    async fn take_in(&self, kept: &BTreeSet<String>) -> Result<(), SandboxError> {
        // Before pods are listed, because those without a sandbox are deleted.
        for id in kept {
            self.cluster.statuses.follow(&name_of(id));
        }
        match ask(&self.cluster.api).await {
            Err(failure @ (Failure::Lost(_) | Failure::NoRoom(_))) => {
                tracing::warn!(error = %failure, "could not connect to the cluster yet");
            }
            answered => answered.map_err(|failure| unlisted(&failure))?,
        }
        let cluster = self.cluster.clone();
        self.watching.get_or_init(|| {
            let watching = async move {
                let (statuses, api) = (cluster.statuses.clone(), cluster.api.clone());
                tokio::join!(watch(statuses, api, cluster.selector()), cluster.sweep());
            };
            tokio::spawn(watching).abort_handle()
        });
        Ok(())
    }

    fn place(&self, id: &str, _tenant: &str, folder: &Path) -> Box<dyn Place> {
        Box::new(PodPlace::new(self.cluster.clone(), id, folder.to_owned()))
    }

    fn check_image(&self, name: &str) -> Result<(), SandboxError> {
        self.cluster.image(name).map(drop)
    }

    fn images(&self) -> Vec<String> {
        self.cluster.config.images.keys().cloned().collect()
    }

    fn check_imports(&self, name: &str) -> Result<(), SandboxError> {
        Err(no_images(name))
    }

    async fn import(&self, name: &str, _: &Path, _: Option<&str>) -> Result<(), SandboxError> {
        Err(no_images(name))
    }

    async fn remove_image(&self, name: &str) -> Result<(), SandboxError> {
        Err(no_images(name))
    }

    fn check_pauses(&self) -> Result<(), SandboxError> {
        Err(SandboxError::Unsupported(PAUSES.to_owned()))
    }
}

/// Checks that pods may be listed.
async fn ask(api: &Api<Pod>) -> Result<(), Failure> {
    list(api, &format!("{OWNER}=nobody")).await.map(drop)
}

/// The error if the pods can't be listed.
fn unlisted(failure: &Failure) -> SandboxError {
    SandboxError::System(
        "the pods of the cluster",
        io::Error::other(failure.to_string()),
    )
}

fn no_images(name: &str) -> SandboxError {
    SandboxError::Unsupported(format!(
        "images of sandboxes on Kubernetes come from the cluster: add `{name}` to kubernetes.images, or \
         send the reference of a container image"
    ))
}
