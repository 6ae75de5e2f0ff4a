//! What tests have: an agent in a folder of its own, and commands whose output is read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use treadle_sandbox::{End, Exec, Guard, Sandbox, SandboxConfig, SandboxSpec, Sandboxes};

/// An agent, and the folder that goes with it.
pub(crate) struct Stage {
    pub(crate) sandboxes: Sandboxes,
    pub(crate) folder: TempDir,
}

pub(crate) fn config(folder: &Path) -> SandboxConfig {
    let program = env!("CARGO_BIN_EXE_treadle-sandbox-probe").into();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut config = SandboxConfig::new(
        (program, Vec::new()),
        folder.join("agent"),
        (0..cores as u32).collect(),
    );
    config.memory_bytes = 256 << 20;
    config.processes_max = 64;
    config.disk_bytes_max = 64 << 20;
    config
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::without(&[]).await
    }

    /// An agent that leaves protections out.
    pub(crate) async fn without(guards: &[Guard]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        config.without = guards.to_vec();
        let sandboxes = Sandboxes::start(config).await.unwrap();
        Self { sandboxes, folder }
    }

    pub(crate) async fn sandbox(&self) -> Arc<Sandbox> {
        self.sandboxes.create(SandboxSpec::default()).await.unwrap()
    }
}

/// Runs a line of a shell; gives its output and its end.
pub(crate) async fn sh(sandbox: &Arc<Sandbox>, line: &str) -> (String, End) {
    let mut exec = Exec::new(["/bin/sh", "-c", line]);
    exec.merged = true;
    let mut running = sandbox.run(exec).await.unwrap();
    let mut output = Vec::new();
    let mut stdout = running.stdout;
    running.stdout = tokio::net::unix::pipe::Receiver::from_owned_fd(nothing()).unwrap();
    let reading = async { stdout.read_to_end(&mut output).await };
    let (end, timed_out) = tokio::join!(running.wait_at_most(Duration::from_secs(60)), reading).0;
    assert!(
        !timed_out,
        "{line}: it did not end: {}",
        String::from_utf8_lossy(&output)
    );
    (String::from_utf8_lossy(&output).into_owned(), end)
}

/// A pipe that nobody writes to.
fn nothing() -> std::os::fd::OwnedFd {
    std::io::pipe().unwrap().0.into()
}
