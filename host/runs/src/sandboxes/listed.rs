//! Lists of the sandboxes of several machines.

use super::{Host, SandboxApp};
use crate::nodes::{LIST_PATH, Nodes, SNAPSHOTS_PATH};
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use treadle_model::Tenant;
use treadle_sandbox::{Snapshot, Status};

/// A sandbox, its node and its limits there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// The sandbox.
    pub status: Status,
    /// Its node; `None` on the daemon's own machine.
    #[serde(default)]
    pub node: Option<String>,
    /// Cores that commands run on.
    pub cores: usize,
    /// Its memory limit.
    pub memory_bytes_max: u64,
    /// Its disk limit.
    pub disk_bytes_max: u64,
}

/// A snapshot and its node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedSnapshot {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Its node; `None` on the daemon's own machine.
    #[serde(default)]
    pub node: Option<String>,
}

impl Host {
    /// A tenant's snapshots on this machine, oldest first.
    pub fn snapshots(&self, tenant: &Tenant) -> Vec<ListedSnapshot> {
        let all = self.sandboxes.snapshots().into_iter();
        let own = all.filter(|snapshot| snapshot.tenant == tenant.name());
        let listed = |snapshot| ListedSnapshot {
            snapshot,
            node: None,
        };
        own.map(listed).collect()
    }

    /// A sandbox of this machine, with its limits.
    pub fn listed(&self, status: Status) -> Listed {
        let sandbox = self.sandboxes.get(&status.id);
        let disk_bytes_max = sandbox.map_or(0, |sandbox| sandbox.disk_bytes_max());
        Listed {
            node: None,
            cores: treadle_actions::cores().len(),
            memory_bytes_max: status.spec.memory_bytes.unwrap_or(self.memory_bytes_max),
            disk_bytes_max: disk_bytes_max.max(status.disk_bytes),
            status,
        }
    }

    /// A tenant's sandboxes on this machine, oldest first.
    pub fn list_with_bounds(&self, tenant: &Tenant) -> Vec<Listed> {
        let all = self.list(tenant).into_iter();
        all.map(|status| self.listed(status)).collect()
    }
}

impl SandboxApp {
    /// A tenant's sandboxes on all machines, oldest first. Nodes that don't respond are left out.
    pub async fn list(&self, tenant: &Tenant) -> Vec<Listed> {
        let own = self.host.as_ref();
        let mut all = own.map_or_else(Vec::new, |host| host.list_with_bounds(tenant));
        if let Some(nodes) = &self.nodes {
            all.extend(of_nodes::<Listed>(nodes, LIST_PATH, tenant).await);
        }
        all.sort_by(|a, b| {
            let place = |listed: &Listed| (listed.status.created_at_us, listed.status.id.clone());
            place(a).cmp(&place(b))
        });
        all
    }

    /// A tenant's snapshots on all machines, oldest first. Nodes that don't respond are left out.
    pub async fn snapshots(&self, tenant: &Tenant) -> Vec<ListedSnapshot> {
        let own = self.host.as_ref();
        let mut all = own.map_or_else(Vec::new, |host| host.snapshots(tenant));
        if let Some(nodes) = &self.nodes {
            all.extend(of_nodes::<ListedSnapshot>(nodes, SNAPSHOTS_PATH, tenant).await);
        }
        all.sort_by_key(|listed| (listed.snapshot.created_at_us, listed.snapshot.id.clone()));
        all
    }
}

async fn of_nodes<T: DeserializeOwned>(nodes: &Nodes, path: &str, tenant: &Tenant) -> Vec<T> {
    let asked = nodes.linked().into_iter().map(async |(mark, url)| {
        let told = nodes.told(&url, path, tenant.name()).await;
        let listed = told.and_then(|told| serde_json::from_slice(&told).ok());
        listed.unwrap_or_else(|| {
            tracing::warn!(mark, path, "a node did not return its list");
            Vec::<T>::new()
        })
    });
    join_all(asked).await.into_iter().flatten().collect()
}
