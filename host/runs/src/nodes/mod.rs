//! Nodes: machines that run sandboxes for this daemon. Each runs an agent (`treadle node-agent`),
//! which connects, reports its resources and its open attempts, and then runs the attempts that it
//! is sent.
//!
//! An agent is a gateway of actions. The daemon decides which action runs when, and records it
//! before it sends it to the node; the node writes a marker for each attempt before it starts, and
//! keeps its end until it is recorded here. After each connection both compare their attempts
//! ([`settle`](settling)). A node that does not reconnect is lost, with its sandboxes.
//!
//! Requests about a node's sandboxes are forwarded to it unchanged (`host/sandbox-apis/src/forward.rs`).

mod action_host;
mod choice;
mod forwarding;
mod frames;
mod link;
mod resources;
mod rows;
mod settling;

pub use action_host::ActionHost;
pub use choice::{Own, Place};
pub use frames::{
    Answer, AttemptKey, Ended, FromNode, Hello, Known, LIST_PATH, MARK_CHARS, NodeLoad, PATH,
    PROTOCOL, Question, SIGNED_PATH, SNAPSHOTS_PATH, Start, ToNode, refusal,
};
pub use link::connect;
pub(crate) use resources::{draw_from, is_of_node};
pub use resources::{mark_of_sandbox, node_of, own_name};
pub use rows::NodeRow;

use crate::proxy::Proxy;
use settling::At;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use treadle_config::Secret;
use treadle_core::actions::{ActionEvent, Resource};
use treadle_model::ActionId;
use treadle_scheduler::DriverHandle;

/// Most nodes: each has two of the core's 256 resources.
const NODES_MAX: usize = 100;

/// All nodes.
pub struct Nodes {
    driver: DriverHandle,
    proxy: Proxy,
    secret: Secret,
    /// How long a node may be disconnected before it is lost.
    away_max: Duration,
    /// Resources of the daemon's machine.
    own: Vec<Resource>,
    state: Mutex<State>,
    /// Locked while resources change.
    order: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// By their marks.
    nodes: BTreeMap<String, Node>,
    connections: u64,
    /// The node of each attempt.
    placed: BTreeMap<AttemptKey, String>,
    /// The node of each action whose handler waits to run.
    held: BTreeMap<ActionId, String>,
    /// Whether operators cordoned a node, by mark; the node may not have received it yet.
    cordons: BTreeMap<String, bool>,
}

/// A node.
struct Node {
    /// `None` for a node that has not connected since the daemon started.
    hello: Option<Hello>,
    resources: Vec<Resource>,
    link: Option<Link>,
    /// When it connected or disconnected.
    since: Instant,
    load: NodeLoad,
    /// Sandboxes placed on it since its last load report.
    chosen: u64,
    /// Attempts without a recorded end that were sent on this connection; only complete once
    /// settled.
    told: BTreeSet<AttemptKey>,
    /// Whether both sides agree on its attempts.
    is_settled: bool,
}

/// A node's connection.
struct Link {
    connection: u64,
    run: String,
    sender: UnboundedSender<ToNode>,
}

impl Node {
    fn away(resources: Vec<Resource>) -> Self {
        Self {
            hello: None,
            resources,
            link: None,
            since: Instant::now(),
            load: NodeLoad::default(),
            chosen: 0,
            told: BTreeSet::new(),
            is_settled: false,
        }
    }

    /// Sends it an attempt, once per connection.
    fn start(&mut self, start: Start) {
        if self.link.is_some() && self.told.insert(start.attempt) {
            let start = Start {
                grants: resources::as_its_own(start.grants),
                ..start
            };
            self.say(ToNode::Start(Box::new(start)));
        }
    }

    fn say(&self, word: ToNode) {
        if let Some(link) = &self.link {
            // A disconnected node gets it when it reconnects.
            let _ = link.sender.send(word);
        }
    }

    fn name(&self) -> &str {
        let hello = self.hello.as_ref();
        hello.map_or("a node that has not reconnected yet", |hello| &*hello.name)
    }
}

impl Nodes {
    /// Starts without connected nodes. Those whose resources are `known` are expected to reconnect.
    pub(crate) fn new(
        driver: DriverHandle,
        proxy: Proxy,
        secret: Secret,
        away_max: Duration,
        own: Vec<Resource>,
        known: Vec<Resource>,
    ) -> Arc<Self> {
        let mut nodes = BTreeMap::<String, Node>::new();
        for resource in known {
            let Some(mark) = resources::mark(&resource.name) else {
                continue;
            };
            let node = nodes
                .entry(mark.to_owned())
                .or_insert_with(|| Node::away(Vec::new()));
            node.resources.push(resource);
        }
        let state = State {
            nodes,
            ..State::default()
        };
        Arc::new(Self {
            driver,
            proxy,
            secret,
            away_max,
            own,
            state: Mutex::new(state),
            order: tokio::sync::Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resources of all machines.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        self.lock().resources(&self.own)
    }

    /// Gives up nodes from before this daemon's start that don't reconnect.
    pub(crate) fn expect_known(self: &Arc<Self>) {
        for mark in self.lock().nodes.keys() {
            let (nodes, mark) = (self.clone(), mark.clone());
            tokio::spawn(async move { nodes.expect_back(&mark).await });
        }
    }

    /// Accepts a node and sends it a welcome.
    async fn join(&self, hello: &Hello, sender: UnboundedSender<ToNode>) -> Result<At, String> {
        check(hello)?;
        // Changes of resources must reach the driver in order, without holding the state's lock.
        let _order = self.order.lock().await;
        let (connection, resources) = self.take_in(hello, sender)?;
        if let Some(resources) = resources {
            self.driver
                .event(ActionEvent::ResourcesSet { resources }.into());
        }
        Ok(At {
            mark: hello.mark.clone(),
            connection,
        })
    }

    /// Returns the connection's number, and all resources if they have changed.
    fn take_in(
        &self,
        hello: &Hello,
        sender: UnboundedSender<ToNode>,
    ) -> Result<(u64, Option<Vec<Resource>>), String> {
        let mut state = self.lock();
        let is_new = !state.nodes.contains_key(&hello.mark);
        if is_new && state.nodes.len() >= NODES_MAX {
            return Err(format!("node limit reached ({NODES_MAX})"));
        }
        let is_taken = |node: &Node| {
            let is_same = |own: &Hello| own.name == hello.name || own.mark == hello.mark;
            let is_other = |link: &Link| link.run != hello.run;
            node.hello.as_ref().is_some_and(is_same) && node.link.as_ref().is_some_and(is_other)
        };
        if state.nodes.values().any(is_taken) {
            return Err(format!(
                "another node with the name {}, or with a copy of this folder, is connected; give \
                 this one another name and folder",
                hello.name
            ));
        }
        state.connections += 1;
        let connection = state.connections;
        // Before any other message on the connection.
        let _ = sender.send(ToNode::Welcome);
        let State { nodes, cordons, .. } = &mut *state;
        let node = nodes
            .entry(hello.mark.clone())
            .or_insert_with(|| Node::away(Vec::new()));
        let resources = resources::of(hello);
        let is_changed = node.resources != resources;
        let mut hello = hello.clone();
        if let Some(wanted) = cordons.get(&hello.mark).copied()
            && wanted != hello.cordoned
        {
            // It was disconnected when it was cordoned.
            let _ = sender.send(ToNode::Cordon { cordoned: wanted });
            hello.cordoned = wanted;
        }
        *node = Node {
            load: node.load.clone(),
            link: Some(Link {
                connection,
                run: hello.run.clone(),
                sender,
            }),
            hello: Some(hello),
            ..Node::away(resources)
        };
        Ok((connection, is_changed.then(|| state.resources(&self.own))))
    }

    /// Handles the end of a node's connection.
    async fn left(&self, at: &At) {
        match node_at(&mut self.lock().nodes, at) {
            Some(node) => {
                node.link = None;
                node.since = Instant::now();
            }
            None => return,
        }
        self.expect_back(&at.mark).await;
    }

    async fn expect_back(&self, mark: &str) {
        tokio::time::sleep(self.away_max).await;
        let is_lost = {
            let state = self.lock();
            let node = state.nodes.get(mark);
            node.is_some_and(|node| node.link.is_none() && node.since.elapsed() >= self.away_max)
        };
        if is_lost {
            self.lose(mark).await;
        }
    }

    /// Gives up a node that did not reconnect: attempts on it have an unknown outcome, and those
    /// that wait for it end.
    async fn lose(&self, mark: &str) {
        let _order = self.order.lock().await;
        if let Some(resources) = self.take_out(mark) {
            self.driver
                .event(ActionEvent::ResourcesLost { resources }.into());
        }
    }

    /// Removes a disconnected node; returns the names of its resources.
    fn take_out(&self, mark: &str) -> Option<Vec<Box<str>>> {
        let mut state = self.lock();
        if state.nodes.get(mark)?.link.is_some() {
            return None;
        }
        let node = state.nodes.remove(mark)?;
        tracing::warn!(
            node = node.name(),
            mark,
            "a node did not reconnect; its sandboxes are lost"
        );
        state.placed.retain(|_, at| at != mark);
        state.held.retain(|_, at| at != mark);
        state.cordons.remove(mark);
        let resources = node.resources.into_iter().map(|resource| resource.name);
        Some(resources.collect())
    }

    /// Sends a node an attempt whose start is on record; a disconnected node gets it when it
    /// reconnects.
    pub(crate) fn start(&self, mark: &str, start: Start) {
        let mut state = self.lock();
        let attempt = start.attempt;
        if let Some(node) = state.nodes.get_mut(mark) {
            node.start(start);
            state.placed.insert(attempt, mark.to_owned());
        }
    }

    /// Sends an attempt on this connection only.
    fn start_on(&self, at: &At, start: Start) {
        if let Some(node) = node_at(&mut self.lock().nodes, at) {
            node.start(start);
        }
    }

    /// Whether an attempt was sent on this connection.
    fn was_told(&self, at: &At, attempt: AttemptKey) -> bool {
        let mut state = self.lock();
        let node = node_at(&mut state.nodes, at);
        node.is_none_or(|node| node.told.contains(&attempt))
    }

    /// Marks the connection as settled: its attempts are these and those sent since.
    fn settled(&self, at: &At, here: &BTreeSet<AttemptKey>) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(node) = node_at(&mut state.nodes, at) else {
            return;
        };
        node.is_settled = true;
        node.say(ToNode::Settled);
        let placed = &mut state.placed;
        placed.retain(|attempt, mark| {
            *mark != at.mark || here.contains(attempt) || node.told.contains(attempt)
        });
        // Attempts that have ended by now are not sent again.
        node.told.retain(|attempt| placed.contains_key(attempt));
    }

    /// Sends a message on this connection only.
    fn say(&self, at: &At, word: ToNode) {
        if let Some(node) = node_at(&mut self.lock().nodes, at) {
            node.say(word);
        }
    }

    /// Stops an attempt if it is at a node; returns whether it is.
    pub(crate) fn stop(&self, attempt: AttemptKey) -> bool {
        let state = self.lock();
        let node = state.node_with(attempt);
        if let Some(node) = node {
            node.say(ToNode::Stop { attempt });
        }
        node.is_some()
    }

    /// Acknowledges the recorded end of an attempt if it is at a node; returns whether it is.
    pub(crate) fn acknowledge(&self, attempt: AttemptKey) -> bool {
        let mut state = self.lock();
        let Some(mark) = state.placed.remove(&attempt) else {
            return false;
        };
        if let Some(node) = state.nodes.get_mut(&mark) {
            node.say(ToNode::Acknowledge { attempt });
            if node.is_settled {
                node.told.remove(&attempt);
            }
        }
        true
    }

    /// Handles the end of an action.
    pub(crate) fn over(&self, action: ActionId) {
        let mut state = self.lock();
        if let Some(mark) = state.held.remove(&action)
            && let Some(node) = state.nodes.get(&mark)
        {
            node.say(ToNode::Over { action });
        }
    }

    /// Whether there is a node with this mark.
    pub fn has(&self, mark: &str) -> bool {
        self.lock().nodes.contains_key(mark)
    }

    /// URLs of connected nodes that have an image, or lack it.
    pub fn urls_by_image(&self, image: &str, has: bool) -> Vec<String> {
        let state = self.lock();
        let fits = |node: &&Node| {
            node.link.is_some() && node.load.images.iter().any(|own| own == image) == has
        };
        let fitting = state.nodes.values().filter(fits);
        let urls = fitting.filter_map(|node| Some(node.hello.as_ref()?.url.clone()));
        urls.collect()
    }

    /// A tenant's images on all nodes.
    pub fn images_of(&self, tenant: &str) -> BTreeSet<String> {
        let state = self.lock();
        let loads = state.nodes.values().map(|node| &node.load);
        loads
            .flat_map(|load| load.images_of(tenant).cloned())
            .collect()
    }

    /// Notes that a node's handler waits for an action.
    fn held(&self, mark: &str, action: ActionId) {
        self.lock().held.insert(action, mark.to_owned());
    }

    /// Ends the sandboxes of a program on all nodes.
    pub fn program_ended(&self, tenant: &str, program: &str) {
        for node in self.lock().nodes.values() {
            node.say(ToNode::ProgramEnded {
                tenant: tenant.to_owned(),
                program: program.to_owned(),
            });
        }
    }
}

impl State {
    fn resources(&self, own: &[Resource]) -> Vec<Resource> {
        let of_nodes = self.nodes.values().flat_map(|node| &node.resources);
        own.iter().chain(of_nodes).cloned().collect()
    }

    fn node_with(&self, attempt: AttemptKey) -> Option<&Node> {
        self.nodes.get(self.placed.get(&attempt)?)
    }
}

/// The node, if this is still its connection.
fn node_at<'n>(nodes: &'n mut BTreeMap<String, Node>, at: &At) -> Option<&'n mut Node> {
    let node = nodes.get_mut(&at.mark)?;
    let is_it = node.link.as_ref()?.connection == at.connection;
    is_it.then_some(node)
}

fn check(hello: &Hello) -> Result<(), String> {
    let is_mark = hello.mark.len() == MARK_CHARS
        && hello.mark.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_mark {
        return Err("its mark is invalid; remove `node.json` from its folder".to_owned());
    }
    if hello.name.is_empty() || hello.name.len() > 128 || hello.name.contains(char::is_control) {
        return Err(
            "its name must have 1 to 128 characters without control characters; set one \
                    with --name"
                .to_owned(),
        );
    }
    if treadle_trust::base_url(&hello.url).is_err() {
        return Err(format!(
            "{} is not a URL; set one such as http://10.0.0.7:8301 with --advertise",
            hello.url
        ));
    }
    Ok(())
}
