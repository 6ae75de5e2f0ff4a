//! The view of nodes for operators.

use super::frames::ToNode;
use super::{Node, Nodes};
use serde::Serialize;
use std::time::Duration;
use treadle_http::Exposition;
use treadle_model::tenant::DEFAULT_TENANT;
use utoipa::ToSchema;

/// A machine that runs sandboxes for this daemon.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its mark: the suffix of its sandboxes' names, and of its resources after an `@`.
    mark: String,
    /// ready, cordoned, or away.
    state: &'static str,
    /// How long it has been in this state, in seconds.
    for_s: u64,
    /// Its URL for the daemon.
    url: String,
    /// Its version of treadle.
    version: String,
    /// Cores for actions.
    cores: u64,
    /// Memory for actions, in bytes.
    memory_bytes: u64,
    /// Free memory of the machine, in bytes.
    memory_free_bytes: u64,
    /// Its sandboxes.
    sandboxes: u64,
    /// Running attempts of actions.
    actions: usize,
    /// Its images.
    images: Vec<String>,
}

impl Node {
    fn state(&self) -> &'static str {
        match (&self.link, &self.hello) {
            (None, _) => "away",
            (Some(_), Some(hello)) if hello.cordoned => "cordoned",
            (Some(_), _) => "ready",
        }
    }
}

impl Nodes {
    /// All nodes by name, with the images that a tenant may see.
    pub fn rows(&self, tenant: &str) -> Vec<NodeRow> {
        let state = self.lock();
        let rows = state.nodes.iter().map(|(mark, node)| {
            let hello = node.hello.as_ref();
            let of =
                |text: fn(&super::Hello) -> &str| hello.map_or(String::new(), |h| text(h).into());
            NodeRow {
                name: node.name().to_owned(),
                mark: mark.clone(),
                state: node.state(),
                for_s: node.since.elapsed().as_secs(),
                url: of(|hello| &hello.url),
                version: of(|hello| &hello.version),
                cores: hello.map_or(0, |hello| hello.cores),
                memory_bytes: hello.map_or(0, |hello| hello.memory_mib << 20),
                memory_free_bytes: node.load.memory_free_mib << 20,
                sandboxes: node.load.sandboxes,
                actions: state.placed.values().filter(|at| *at == mark).count(),
                images: node.load.images_of(tenant).cloned().collect(),
            }
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// Cordons a node, by name or mark, or takes it back; returns its new state. Fails for a
    /// disconnected node.
    pub fn cordon(
        &self,
        tenant: &str,
        name: &str,
        cordoned: bool,
    ) -> Option<Result<NodeRow, Duration>> {
        let mark = {
            let mut state = self.lock();
            let is_named =
                |(mark, node): &(&String, &mut Node)| *mark == name || node.name() == name;
            let (mark, node) = state.nodes.iter_mut().find(is_named)?;
            if node.link.is_none() {
                return Some(Err(node.since.elapsed()));
            }
            node.say(ToNode::Cordon { cordoned });
            if let Some(hello) = &mut node.hello {
                hello.cordoned = cordoned;
            }
            let mark = mark.clone();
            state.cordons.insert(mark.clone(), cordoned);
            mark
        };
        let mut rows = self.rows(tenant).into_iter();
        rows.find(|row| row.mark == mark).map(Ok)
    }

    /// The metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        let rows = self.rows(DEFAULT_TENANT);
        let mut text = Exposition::default();
        let name = "treadle_nodes";
        text.head(name, "gauge", "Nodes by state.");
        for state in ["ready", "cordoned", "away"] {
            let count = rows.iter().filter(|row| row.state == state).count() as u64;
            text.row(name, &format!("state=\"{state}\""), count);
        }
        let name = "treadle_node_sandboxes";
        text.head(name, "gauge", "Sandboxes by node, as last reported.");
        for row in &rows {
            text.row(name, &format!("node=\"{}\"", row.mark), row.sandboxes);
        }
        text.into_string()
    }
}
