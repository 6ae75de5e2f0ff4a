//! Where engines run: on this machine, or on one with a node's agent.

use std::path::PathBuf;
use std::sync::Arc;
use treadle_config::Config;
use treadle_runs::nodes::Nodes;
use treadle_runs::weights::{Pulls, Wanted, host_of, is_here};
use treadle_weights::{Hosts, StoredWeights};

/// Has hosts of engines pull versions from the store.
pub(super) struct WeightHosts {
    pulls: Pulls,
    nodes: Option<Arc<Nodes>>,
}

impl WeightHosts {
    pub(super) fn new(config: &Config, nodes: Option<Arc<Nodes>>) -> Self {
        Self {
            pulls: Pulls::new(config),
            nodes,
        }
    }
}

#[async_trait::async_trait]
impl Hosts for WeightHosts {
    async fn pull(&self, engine: &str, stored: StoredWeights<'_>) -> Result<(), String> {
        let wanted = Wanted {
            job: stored.job.to_owned(),
            lineage: stored.weights.lineage,
            version: stored.weights.version,
            folder: PathBuf::from(&*stored.weights.folder),
            serving: stored.serving,
        };
        if !self.pulls.is_of_store(&wanted) {
            // A folder that a request named, which the engine can read.
            return Ok(());
        }
        if is_here(engine) {
            return self.pulls.pull(&wanted).await;
        }
        let host = host_of(engine).unwrap_or_default();
        let pulled = match &self.nodes {
            Some(nodes) => nodes.pull_weights(host, &wanted).await,
            None => None,
        };
        pulled.unwrap_or_else(|| {
            Err(format!(
                "no node's agent runs on {host}, which has to pull the version; start `treadle \
                 node-agent` there, or publish with a `folder` that the engine can read"
            ))
        })
    }
}
