//! The place of a sandbox in a cluster: creates and removes its pod.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use tokio::sync::watch;
use treadle_sandbox::{End, Environment, Place, Record, SandboxError};

use crate::client::{Failure, asked};
use crate::cluster::{Cluster, PAUSES};
use crate::copies::COPY_BYTES_MAX;
use crate::fate::{Ending, Fate};
use crate::manifest::{self, OWNER, name_of};
use crate::ready_pod::ReadyPod;
use crate::script;

/// Attempts to create a pod after conflicts with other changes, such as those of a quota.
const TRIES: u32 = 3;
/// Timeout for the processes of a pod to end.
const END_MAX: Duration = Duration::from_secs(5);
/// Pause before a failed removal of a pod is retried.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the removal of a pod is waited for.
const REMOVAL_MAX: Duration = Duration::from_secs(4);

/// The place of a sandbox.
#[derive(Debug)]
pub(crate) struct PodPlace {
    cluster: Arc<Cluster>,
    /// The pod's name.
    pod: String,
    fate: watch::Receiver<Fate>,
    /// The sandbox's local folder.
    folder: PathBuf,
}

impl PodPlace {
    pub(crate) fn new(cluster: Arc<Cluster>, id: &str, folder: PathBuf) -> Self {
        let pod = name_of(id);
        let fate = cluster.statuses.follow(&pod);
        Self {
            cluster,
            pod,
            fate,
            folder,
        }
    }

    /// Creates the pod.
    async fn create(&self, record: &Record) -> Result<(), Failure> {
        let cluster = &self.cluster;
        let image = cluster
            .image(&record.spec.image)
            .map_err(|error| Failure::Refused(error.to_string()))?;
        let pod = manifest::pod(&cluster.config, record, &image, &cluster.owner)
            .map_err(|error| Failure::Refused(error.to_string()))?;
        let mut tries = 1;
        loop {
            let created = asked(cluster.api.create(&PostParams::default(), &pod)).await;
            match created {
                Err(Failure::Conflict) if tries < TRIES => tries += 1,
                // An earlier attempt succeeded without an answer.
                Err(Failure::Exists) => return self.found().await.map(drop),
                Err(Failure::NotFound) => {
                    let problem = "its namespace does not exist; correct kubernetes.namespace";
                    return Err(Failure::Refused(problem.to_owned()));
                }
                created => return created.map(drop),
            }
        }
    }

    /// The current pod, if it belongs to this agent.
    async fn found(&self) -> Result<Pod, Failure> {
        let pod = asked(self.cluster.api.get(&self.pod)).await?;
        let labels = pod.metadata.labels.as_ref();
        let owner = labels.and_then(|labels| labels.get(OWNER));
        if owner == Some(&self.cluster.owner) {
            return Ok(pod);
        }
        Err(Failure::Refused(format!(
            "the pod {} does not belong to this daemon",
            self.pod
        )))
    }

    fn environment(&self) -> ReadyPod {
        ReadyPod::new(
            self.cluster.api.clone(),
            self.pod.clone(),
            self.fate.clone(),
            self.folder.clone(),
            self.cluster.config.disk_bytes_max.min(COPY_BYTES_MAX),
            self.cluster.copies.clone(),
        )
    }

    /// Waits until the pod is ready.
    async fn ready(&self) -> io::Result<()> {
        let mut fate = self.fate.clone();
        let max = self.cluster.config.ready_max;
        let settled = fate.wait_for(|fate| matches!(fate, Fate::Ready | Fate::Ended(_)));
        let settled = tokio::time::timeout(max, settled).await;
        let now = match settled {
            Ok(Ok(fate)) => fate.clone(),
            _ => self.fate.borrow().clone(),
        };
        let problem = match now {
            Fate::Ready => return Ok(()),
            Fate::Ended(Ending { cause, .. }) => gone(&cause),
            Fate::Unheard => format!(
                "no status of its pod was received within {} s",
                max.as_secs()
            ),
            Fate::Starting(why) => format!(
                "its pod was not ready within {} s (kubernetes.ready_s_max): {why}",
                max.as_secs()
            ),
        };
        Err(io::Error::other(problem))
    }
}

/// The message for a sandbox whose pod has ended.
fn gone(cause: &str) -> String {
    format!("its pod is gone, and its files with it ({cause}); make another sandbox")
}

#[async_trait]
impl Place for PodPlace {
    async fn claim(&self, record: &Record) -> Result<(), SandboxError> {
        self.create(record).await.map_err(Failure::told)
    }

    async fn make(&self, record: &Record) -> io::Result<Arc<dyn Environment>> {
        let told = |failure: Failure| io::Error::other(failure.to_string());
        match self.found().await {
            Ok(pod) => self.cluster.statuses.tell_first(&self.pod, Fate::of(&pod)),
            Err(Failure::NotFound) => {
                return Err(io::Error::other(gone("it no longer exists")));
            }
            Err(failure) => return Err(told(failure)),
        }
        self.ready().await?;
        let environment = self.environment();
        if record.was_ready() {
            // Ends processes that an earlier daemon's commands have left in the pod.
            environment
                .tell(&script::end_all(&self.pod), END_MAX)
                .await?;
        }
        Ok(Arc::new(environment))
    }

    async fn end(&self) -> bool {
        if *self.fate.borrow() != Fate::Ready {
            return true;
        }
        let ended = self
            .environment()
            .tell(&script::end_all(&self.pod), END_MAX)
            .await;
        ended.is_ok() || matches!(*self.fate.borrow(), Fate::Ended(_))
    }

    async fn remove(&self) -> bool {
        let deleted = tokio::time::timeout(REMOVAL_MAX, self.cluster.delete(&self.pod)).await;
        if let Ok(Ok(())) = deleted {
            let ending = Ending::lost("it was removed");
            self.cluster.statuses.tell(&self.pod, Fate::Ended(ending));
            return true;
        }
        self.cluster.statuses.orphans.put(&self.pod, AGAIN);
        false
    }

    async fn freeze(&self, _: bool) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, PAUSES))
    }

    async fn copy(&self, _: &str, _: bool) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, PAUSES))
    }

    fn lost(&self) -> Option<String> {
        match &*self.fate.borrow() {
            Fate::Ended(Ending { cause, .. }) => Some(gone(cause)),
            _ => None,
        }
    }

    /// The kubelet enforces the limit, and evicts pods that exceed it.
    async fn disk_bytes(&self) -> Option<u64> {
        None
    }

    fn transfer_bytes_max(&self) -> u64 {
        self.cluster.copies.left()
    }

    /// A pod has the cores of its own limit.
    fn give(&self, _: &[&[u32]]) -> io::Result<()> {
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn out_of_memory(&self) -> u64 {
        let out =
            matches!(&*self.fate.borrow(), Fate::Ended(ending) if ending.end == End::OutOfMemory);
        u64::from(out)
    }
}

impl Drop for PodPlace {
    fn drop(&mut self) {
        self.cluster.statuses.forget(&self.pod);
    }
}
