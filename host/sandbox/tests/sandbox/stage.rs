//! The setup of tests: an agent in a temporary folder, and commands with output.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use treadle_sandbox::{End, Event, Exec, Guard, Sandbox, SandboxConfig, SandboxSpec, Sandboxes};

/// Timeout of everything in tests.
const LONG: Duration = Duration::from_secs(30);

/// An agent and its folder.
pub(crate) struct Stage {
    pub(crate) sandboxes: Sandboxes,
    pub(crate) folder: TempDir,
}

pub(crate) fn config(folder: &Path) -> SandboxConfig {
    let program = env!("CARGO_BIN_EXE_treadle-sandbox-probe").into();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut config = SandboxConfig::new(
        program,
        Vec::new(),
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

    /// An agent without some protections.
    pub(crate) async fn without(guards: &[Guard]) -> Self {
        Self::with(|config| config.without = guards.to_vec()).await
    }

    /// An agent with another configuration.
    pub(crate) async fn with(change: impl FnOnce(&mut SandboxConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        change(&mut config);
        let sandboxes = Sandboxes::start(config).await.unwrap();
        Self { sandboxes, folder }
    }

    pub(crate) async fn sandbox(&self) -> Arc<Sandbox> {
        self.sandboxes.create(SandboxSpec::default()).await.unwrap()
    }

    /// The folder of a sandbox.
    pub(crate) fn folder_of(&self, sandbox: &Sandbox) -> PathBuf {
        self.folder
            .path()
            .join("agent/sandboxes")
            .join(sandbox.id())
    }

    /// The folder of the files in a sandbox's root.
    pub(crate) fn files_of(&self, sandbox: &Sandbox) -> PathBuf {
        self.folder_of(sandbox).join("0/files")
    }

    /// Waits until nothing of a sandbox is left: cgroups, folder, mounts and processes.
    pub(crate) async fn gone(&self, sandbox: &Sandbox) {
        let folder = self.folder_of(sandbox);
        until("its cgroups are gone", || cgroups_of(sandbox).is_empty()).await;
        until("its folder is gone", || !folder.exists()).await;
        assert_eq!(mounted_by(sandbox.id()), Vec::<String>::new());
    }
}

impl Drop for Stage {
    /// Ends all processes, and removes the agent's cgroups, which nothing else would do.
    fn drop(&mut self) {
        let Ok(agent) = self.folder.path().join("agent").canonicalize() else {
            return;
        };
        let digest = Sha256::digest(agent.as_os_str().as_encoded_bytes());
        let digits: Vec<_> = digest
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let own = format!("treadle-{}", digits.concat());
        let began = Instant::now();
        let mut left: Vec<_> = cgroup_roots().iter().map(|root| root.join(&own)).collect();
        while !left.is_empty() && began.elapsed() < LONG {
            left.retain(|folder| {
                let tenants = folders_in(folder);
                for sandbox in tenants.iter().flat_map(|tenant| folders_in(tenant)) {
                    let _ = std::fs::write(sandbox.join("freezer.state"), "THAWED");
                    let _ = std::fs::write(sandbox.join("cgroup.freeze"), "0");
                    for process in listed(&sandbox) {
                        let process = rustix::process::Pid::from_raw(process);
                        let kill = rustix::process::Signal::KILL;
                        let _ = process.map(|process| rustix::process::kill_process(process, kill));
                    }
                    let _ = std::fs::remove_dir(sandbox);
                }
                for cgroup in tenants.iter().chain([folder]) {
                    let _ = std::fs::remove_dir(cgroup);
                }
                folder.exists()
            });
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The mount points of the kernel's cgroups.
fn cgroup_roots() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let cgroups = mounts.lines().filter(|line| line.contains(" cgroup"));
    let at = cgroups.filter_map(|line| line.split(' ').nth(1));
    at.map(PathBuf::from).collect()
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let inside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = inside.map(|entry| entry.path());
    folders.filter(|path| path.is_dir()).collect()
}

fn listed(cgroup: &Path) -> Vec<i32> {
    let listed = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    listed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

/// The cgroup folders of a sandbox.
pub(crate) fn cgroups_of(sandbox: &Sandbox) -> Vec<PathBuf> {
    let agents = cgroup_roots()
        .into_iter()
        .flat_map(|root| folders_in(&root));
    let tenants = agents.flat_map(|agent| folders_in(&agent));
    let own = tenants.map(|tenant| tenant.join(sandbox.id()));
    own.filter(|folder| folder.is_dir()).collect()
}

/// The pids of a sandbox's processes, as the machine numbers them.
pub(crate) fn processes_of(sandbox: &Sandbox) -> Vec<i32> {
    let cgroups = cgroups_of(sandbox);
    cgroups.first().map_or(Vec::new(), |folder| listed(folder))
}

/// Runs a shell line; returns its output and its end.
pub(crate) async fn sh(sandbox: &Arc<Sandbox>, line: &str) -> (String, End) {
    run(sandbox, Exec::new(["/bin/sh", "-c", line])).await
}

/// Runs a command; returns its output and its end.
pub(crate) async fn run(sandbox: &Arc<Sandbox>, mut exec: Exec) -> (String, End) {
    exec.merged = true;
    let line = exec.command.join(" ");
    let mut running = sandbox.run(exec).await.unwrap();
    let mut output = Vec::new();
    let take = |event: &Event| {
        if let Event::Output(bytes) = event {
            output.extend(bytes);
        }
    };
    let (end, is_late) = running.follow(LONG, take).await;
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(!is_late, "{line}: it did not end: {output}");
    (output, end)
}

/// Waits until a condition holds, by polling.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Processes that see a mount with this word in its line.
pub(crate) fn mounted_by(word: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let processes = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    processes
        .filter(|pid| {
            let mounts = std::fs::read_to_string(format!("/proc/{pid}/mounts"));
            mounts.is_ok_and(|mounts| mounts.contains(word))
        })
        .collect()
}
