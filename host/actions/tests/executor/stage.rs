//! An executor with its environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};
use treadle_actions::{
    ActionBody, ActionOrder, Executor, ExecutorConfig, MemoryOutputs, ServiceSpec,
    SupervisorCommand, recover,
};
use treadle_core::actions::{ActionEvent, Chunk, Grant, Outcome};
use treadle_model::{ActionId, Span};

pub(crate) const PROBE: &str = env!("CARGO_BIN_EXE_treadle-actions-probe");
/// Timeout of everything in tests, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Stage {
    pub(crate) executor: Executor,
    pub(crate) reports: Receiver<ActionEvent>,
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
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ExecutorConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path().join("markers"));
        config.workdir = folder.path().to_owned();
        change(&mut config);
        let recovery = recover(&config).await.unwrap();
        let outputs = Arc::new(MemoryOutputs::default());
        let (sender, reports) = channel(1_024);
        let executor = Executor::start(config, recovery, outputs.clone(), sender);
        Self {
            executor: executor.await.unwrap(),
            reports,
            outputs,
            folder,
            next: 1,
        }
    }

    pub(crate) fn declare(&self, spec: &Value) {
        let spec = ServiceSpec::parse(spec.to_string().as_bytes()).unwrap();
        assert!(self.executor.declare("default", spec, 1));
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Executes a description with default settings.
    pub(crate) fn start(&mut self, body: &Value) -> ActionId {
        self.start_with(body, |_| {})
    }

    pub(crate) fn start_with(
        &mut self,
        body: &Value,
        change: impl FnOnce(&mut ActionOrder),
    ) -> ActionId {
        let mut order = order(ActionId(self.next), body);
        self.next += 1;
        change(&mut order);
        let action = order.action;
        self.executor.execute(order);
        action
    }

    pub(crate) async fn report(&mut self) -> ActionEvent {
        let report = tokio::time::timeout(PATIENCE, self.reports.recv());
        report.await.expect("a report").expect("an executor")
    }

    /// The next report, which must be that an action began.
    pub(crate) async fn began(&mut self) -> ActionId {
        match self.report().await {
            ActionEvent::ActionBegan { action, .. } => action,
            other => panic!("{other:?}"),
        }
    }

    /// The next end, with the action's output.
    pub(crate) async fn end(&mut self) -> (Outcome, String) {
        let (_, outcome, output) = self.end_of_any().await;
        (outcome, output)
    }

    pub(crate) async fn end_of_any(&mut self) -> (ActionId, Outcome, String) {
        loop {
            if let ActionEvent::ActionEnded {
                action,
                outcome,
                output,
                ..
            } = self.report().await
            {
                let output = output.map(|digest| self.outputs.get(&digest).unwrap());
                let output = String::from_utf8(output.unwrap_or_default()).unwrap();
                return (action, outcome, output);
            }
        }
    }

    /// Runs a description to its end.
    pub(crate) async fn run(&mut self, body: Value) -> (Outcome, String) {
        self.start(&body);
        self.end().await
    }

    /// Runs a script to its end.
    pub(crate) async fn shell(&mut self, script: &str) -> (Outcome, String) {
        self.run(shell(script)).await
    }
}

/// The description of a process that runs a script.
pub(crate) fn shell(script: &str) -> Value {
    json!({ "process": { "command": ["sh", "-c", script] } })
}

pub(crate) fn order(action: ActionId, body: &Value) -> ActionOrder {
    ActionOrder {
        action,
        attempt: 1,
        grants: Vec::new(),
        load: None,
        body: Arc::new(ActionBody::parse(body.to_string().as_bytes()).unwrap()),
        run_max: Span::from_secs(600),
        idempotent: false,
        job: "run-1".to_owned(),
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
    let node = 0;
    Grant {
        resource: "gpu".into(),
        units: size.into(),
        chunk: Some(Chunk { node, first, size }),
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

/// Whether a process exists, even as a zombie.
pub(crate) fn is_there(pid: &str) -> bool {
    let pid: u32 = pid.trim().parse().unwrap();
    Path::new(&format!("/proc/{pid}")).exists()
}
