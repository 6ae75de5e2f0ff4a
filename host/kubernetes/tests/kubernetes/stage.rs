//! The setup of the tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use treadle_kubernetes::{Kubernetes, KubernetesConfig};
use treadle_sandbox::{
    End, Event, Exec, Sandbox, SandboxConfig, SandboxError, SandboxSpec, Sandboxes,
};

use crate::stand_in::StandIn;

/// Timeout for anything.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// An agent whose sandboxes are pods of the stand-in.
pub(crate) struct Stage {
    pub(crate) stand_in: StandIn,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) folder: TempDir,
}

pub(crate) fn config(stand_in: &StandIn, folder: &Path) -> KubernetesConfig {
    KubernetesConfig {
        kubeconfig: Some(stand_in.kubeconfig()),
        context: None,
        namespace: None,
        images: [("system".to_owned(), "debian:13".to_owned())].into(),
        runtime_class: None,
        user_namespaces: false,
        cpu_request_millis: 100,
        cpu_limit_millis: 2_000,
        memory_bytes: 512 << 20,
        disk_bytes_max: 8 << 20,
        ready_max: Duration::from_millis(300),
        ttl: Duration::from_hours(1),
        lifetime_max: Duration::from_hours(2),
        folder: folder.to_owned(),
    }
}

pub(crate) async fn agent(stand_in: &StandIn, folder: &Path) -> Sandboxes {
    let cluster = Kubernetes::open(config(stand_in, folder))
        .await
        .expect("a client");
    let none = std::path::PathBuf::new();
    let settings = SandboxConfig {
        disk_bytes_max: 8 << 20,
        ..SandboxConfig::new(none, Vec::new(), folder.to_owned(), vec![0, 1])
    };
    let started = Sandboxes::start_on(Arc::new(cluster), settings).await;
    started.expect("an agent")
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let stand_in = StandIn::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let sandboxes = agent(&stand_in, folder.path()).await;
        Self {
            stand_in,
            sandboxes,
            folder,
        }
    }

    pub(crate) async fn create(&self) -> Result<Arc<Sandbox>, SandboxError> {
        self.sandboxes.create(spec()).await
    }

    pub(crate) async fn sandbox(&self) -> Arc<Sandbox> {
        self.create().await.expect("a sandbox")
    }
}

pub(crate) fn spec() -> SandboxSpec {
    SandboxSpec {
        tenant: "acme".to_owned(),
        job: "default".to_owned(),
        ..SandboxSpec::default()
    }
}

/// The pod of a sandbox.
pub(crate) fn pod(sandbox: &Sandbox) -> String {
    format!("treadle-{}", sandbox.id())
}

/// A script as a command.
pub(crate) fn script(text: &str) -> Exec {
    Exec::new(["sh", "-c", text])
}

/// The standard output and error of a command, and its end.
pub(crate) async fn run(
    sandbox: &Arc<Sandbox>,
    exec: Exec,
) -> Result<(String, String, End), SandboxError> {
    let mut running = sandbox.run(exec).await?;
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let take = |event: &Event| match event {
        Event::Output(bytes) => output.extend(bytes),
        Event::Errors(bytes) => errors.extend(bytes),
        Event::Ended(_) => {}
    };
    let (end, is_late) = running.follow(LONG, take).await;
    assert!(!is_late, "it took too long");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ok((text(output), text(errors), end))
}

/// Number of list or watch requests.
pub(crate) fn lists(stage: &Stage, watches: bool) -> usize {
    let requests = stage.stand_in.state.requests();
    let of_all = requests.iter().filter(|request| request.contains("/pods?"));
    let lists = of_all.filter(|request| request.contains("watch=") == watches);
    lists.count()
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(LONG, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}
