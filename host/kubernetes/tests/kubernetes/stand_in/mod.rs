//! A stand-in for the API server of Kubernetes, in this process. **It is not a cluster, and these
//! tests have not been run on one.** It implements the parts of the API that treadle uses: pods are
//! created, read, listed, watched and deleted, and an `exec` is a WebSocket to a real shell of this
//! machine, so that output and exit status are real. Its other responses are in `fixtures`, written
//! from the public API reference.

mod api;
mod exec;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A response from `fixtures`.
pub(crate) fn fixture(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes/fixtures");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect(name);
    serde_json::from_str(&text).expect(name)
}

/// A running stand-in.
pub(crate) struct StandIn {
    pub(crate) state: Arc<State>,
    pub(crate) url: String,
    serving: JoinHandle<()>,
    folder: TempDir,
}

pub(crate) struct State {
    held: Mutex<ClusterState>,
    /// The version of the newest change.
    version: watch::Sender<u64>,
    /// Whether lists wait after reading the current pods.
    lists_wait: watch::Sender<bool>,
}

#[derive(Default)]
struct ClusterState {
    pods: BTreeMap<String, Value>,
    /// Events for watches, by version.
    events: Vec<(u64, Value)>,
    /// Events before this version are dropped.
    oldest: u64,
    /// Statuses that new pods get at once.
    fates: VecDeque<&'static str>,
    /// Refusals of the next requests of a method.
    refusals: VecDeque<(&'static str, &'static str)>,
    /// Whether every `exec` is refused.
    no_shell: bool,
    /// Whether only the older protocol is supported.
    is_old: bool,
    /// Process groups of each pod.
    groups: Vec<(String, i32)>,
    requests: Vec<String>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a change.
    fn tell(&self, held: &mut ClusterState, kind: &str, mut pod: Value) -> Value {
        let version = *self.version.borrow() + 1;
        pod["metadata"]["resourceVersion"] = version.to_string().into();
        held.events
            .push((version, json!({"type": kind, "object": pod})));
        self.version.send_replace(version);
        pod
    }

    /// Sets the status of a pod.
    pub(crate) fn set(&self, pod: &str, status: &str) {
        let mut held = self.lock();
        let mut found = held.pods[pod].clone();
        found["status"] = fixture(status);
        let found = self.tell(&mut held, "MODIFIED", found);
        held.pods.insert(pod.to_owned(), found);
    }

    /// Ends a pod like a kubelet: its processes, then its status.
    pub(crate) fn end(&self, pod: &str, status: &str) {
        self.kill(pod);
        self.set(pod, status);
    }

    /// Removes a pod like a failed machine.
    pub(crate) fn lose(&self, pod: &str) {
        self.kill(pod);
        let mut held = self.lock();
        if let Some(found) = held.pods.remove(pod) {
            self.tell(&mut held, "DELETED", found);
        }
    }

    fn kill(&self, pod: &str) {
        let held = self.lock();
        for (_, group) in held.groups.iter().filter(|(name, _)| name == pod) {
            if let Some(group) = rustix::process::Pid::from_raw(*group) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
        }
    }

    /// Drops all past events, so that watches must list again. A pod may go unseen meanwhile.
    pub(crate) fn forget(&self, lost: Option<&str>) {
        let mut held = self.lock();
        if let Some(lost) = lost {
            held.pods.remove(lost);
        }
        held.events.clear();
        let version = *self.version.borrow() + 10;
        held.oldest = version;
        self.version.send_replace(version);
    }

    /// Makes lists wait, or lets them continue.
    pub(crate) fn hold_lists(&self, wait: bool) {
        self.lists_wait.send_replace(wait);
    }

    /// Sets the statuses of the next pods.
    pub(crate) fn next_become(&self, statuses: &[&'static str]) {
        self.lock().fates.extend(statuses);
    }

    /// Refuses the next request of this method with this response.
    pub(crate) fn refuse(&self, method: &'static str, status: &'static str) {
        self.lock().refusals.push_back((method, status));
    }

    /// Removes the shell from all images.
    pub(crate) fn without_shell(&self) {
        self.lock().no_shell = true;
    }

    /// Switches to the older protocol.
    pub(crate) fn is_old(&self) {
        self.lock().is_old = true;
    }

    /// Names of all pods.
    pub(crate) fn pods(&self) -> Vec<String> {
        self.lock().pods.keys().cloned().collect()
    }

    /// A pod.
    pub(crate) fn pod(&self, name: &str) -> Value {
        self.lock().pods[name].clone()
    }

    /// Adds a pod.
    pub(crate) fn put(&self, name: &str, labels: &Value) {
        let mut held = self.lock();
        let pod = self.tell(&mut held, "ADDED", running(name, labels));
        held.pods.insert(name.to_owned(), pod);
    }

    /// Adds a pod without an event, so that watches find it only by listing again.
    pub(crate) fn put_unseen(&self, name: &str, labels: &Value) {
        let pod = running(name, labels);
        self.lock().pods.insert(name.to_owned(), pod);
        self.forget(None);
    }

    /// Requests so far: method, path and query.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }
}

/// A pod that runs.
fn running(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "rl", "labels": labels,
            "creationTimestamp": "2026-01-15T10:00:00Z",
        },
        "spec": {"containers": []}, "status": fixture("pod_running"),
    })
}

impl StandIn {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(State {
            held: Mutex::default(),
            version: watch::Sender::new(1),
            lists_wait: watch::Sender::new(false),
        });
        let pods = "/api/v1/namespaces/rl/pods";
        let router = Router::new()
            .route(pods, get(api::list).post(api::create))
            .route(
                &format!("{pods}/{{pod}}"),
                get(api::read).delete(api::delete),
            )
            .route(&format!("{pods}/{{pod}}/exec"), get(exec::exec))
            .with_state(state.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            state,
            url,
            serving,
            folder,
        }
    }

    /// A kubeconfig for the stand-in.
    pub(crate) fn kubeconfig(&self) -> std::path::PathBuf {
        let path = self.folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "stand-in",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [
                {"name": "stand-in", "context": {"cluster": "c", "user": "u", "namespace": "rl"}},
            ],
        });
        std::fs::write(&path, text.to_string()).expect("written");
        path
    }

    /// A folder that is also inside all pods.
    pub(crate) fn inside(&self) -> String {
        self.folder.path().display().to_string()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.serving.abort();
        let pods: Vec<String> = {
            let held = self.state.lock();
            held.groups.iter().map(|(pod, _)| pod.clone()).collect()
        };
        for pod in &pods {
            self.state.kill(pod);
        }
    }
}
