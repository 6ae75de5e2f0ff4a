//! An executor with what is around it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use treadle_actions::{
    ActionBody, Executor, ExecutorConfig, ExecutorEvent, MemoryOutputs, StartRequest,
    SupervisorCommand,
};
use treadle_core::actions::{Chunk, Grant, Outcome};
use treadle_model::{ActionId, Span};

pub(crate) const PROBE: &str = env!("CARGO_BIN_EXE_treadle-actions-probe");
/// No test takes so long, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) executor: Executor,
    pub(crate) events: Receiver<ExecutorEvent>,
    pub(crate) outputs: Arc<MemoryOutputs>,
    pub(crate) folder: TempDir,
    next: u64,
}

pub(crate) fn config(markers: PathBuf) -> ExecutorConfig {
    let supervisor = SupervisorCommand {
        program: PROBE.into(),
        args: vec!["supervise".into()],
    };
    let own = SocketAddr::from(([127, 0, 0, 1], 1));
    ExecutorConfig::new(supervisor, markers, own)
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ExecutorConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path().join("markers"));
        config.workdir = folder.path().to_owned();
        change(&mut config);
        let outputs = Arc::new(MemoryOutputs::default());
        let (executor, events) = Executor::new(config, outputs.clone()).unwrap();
        Self {
            executor,
            events,
            outputs,
            folder,
            next: 1,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn start(&mut self, json: &Value, grants: Vec<Grant>, run_ms_max: u64) -> ActionId {
        let action = ActionId(self.next);
        self.next += 1;
        let mut request = request(action, json);
        (request.grants, request.run_max) = (grants, Span::from_millis(run_ms_max));
        self.executor.start(request).unwrap();
        action
    }

    pub(crate) async fn event(&mut self) -> ExecutorEvent {
        let event = tokio::time::timeout(PATIENCE, self.events.recv());
        event.await.expect("an event").expect("an executor")
    }

    /// The next end, and what the action wrote.
    pub(crate) async fn end(&mut self) -> (Outcome, String) {
        loop {
            if let ExecutorEvent::Ended {
                outcome, output, ..
            } = self.event().await
            {
                return (outcome, self.text(output.as_deref()));
            }
        }
    }

    pub(crate) fn text(&self, output: Option<&str>) -> String {
        let output = output.map_or(Vec::new(), |digest| self.outputs.get(digest).unwrap());
        String::from_utf8(output).unwrap()
    }

    /// Runs a script to its end.
    pub(crate) async fn shell(&mut self, script: &str) -> (Outcome, String) {
        self.shell_with(script, Vec::new(), 60_000).await
    }

    pub(crate) async fn shell_with(
        &mut self,
        script: &str,
        grants: Vec<Grant>,
        run_ms_max: u64,
    ) -> (Outcome, String) {
        self.start(&serde_json::json!({ "shell": script }), grants, run_ms_max);
        self.end().await
    }

    pub(crate) async fn run(&mut self, json: Value) -> (Outcome, String) {
        self.start(&json, Vec::new(), 60_000);
        self.end().await
    }
}

pub(crate) fn request(action: ActionId, json: &Value) -> StartRequest {
    StartRequest {
        action,
        attempt: 1,
        grants: Vec::new(),
        load: None,
        body: Arc::new(ActionBody::parse(json.to_string().as_bytes()).unwrap()),
        run_max: Span::from_secs(60),
        tenant: "default".to_owned(),
    }
}

pub(crate) fn grant(resource: &str, units: u64) -> Grant {
    Grant {
        resource: resource.into(),
        units,
        chunk: None,
    }
}

pub(crate) fn devices(first: u32, size: u32) -> Grant {
    Grant {
        resource: "gpu".into(),
        units: size.into(),
        chunk: Some(Chunk {
            node: 0,
            first,
            size,
        }),
    }
}

pub(crate) const fn exited(code: i32) -> Outcome {
    Outcome::Exited { code }
}

pub(crate) fn cause(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::InfrastructureFailure { cause } => cause,
        other => panic!("{other:?} is no failure of the infrastructure"),
    }
}

/// Whether a process is there, a zombie too.
pub(crate) fn is_there(pid: &str) -> bool {
    let pid: u32 = pid.trim().parse().unwrap();
    Path::new(&format!("/proc/{pid}")).exists()
}
