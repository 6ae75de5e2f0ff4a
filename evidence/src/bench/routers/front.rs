//! A system's process in front of the engines.

use super::command::Places;
use super::list::Peer;
use super::systems::{Kind, System};
use crate::bench::BenchError;
use crate::bench::folder::TemporaryFolder;
use crate::bench::program::without_settings;
use crate::bench::server::Server;
use crate::bench::usage;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use treadle_demo::naming::Naming;
use treadle_http::Upstream;

/// Time for a router to get ready.
const START_MAX: Duration = Duration::from_mins(1);
/// Between two looks at whether it is.
const LOOK: Duration = Duration::from_millis(100);
/// For a connection to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for it to end when it is told to.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Bytes of what it wrote that an error shows.
const LOG_BYTES_MAX: usize = 600;
const LOG: &str = "log";

/// The engines that a system is put in front of.
pub(in crate::bench) struct Behind<'a> {
    /// Their URLs.
    pub(in crate::bench) engines: &'a [String],
    /// What one's KV cache holds, in tokens.
    pub(in crate::bench) capacity_tokens: u64,
    /// Prompt tokens that one computes in a scaled second.
    pub(in crate::bench) prefill_tokens_per_s: f64,
    /// Scaled seconds in a real one.
    pub(in crate::bench) time_scale: f64,
}

/// A system that serves; its processes end when this is dropped.
pub(in crate::bench) struct Front {
    /// Its base URL.
    pub(in crate::bench) url: String,
    /// How it is told which program a request is of.
    pub(in crate::bench) naming: Naming,
    running: Running,
}

enum Running {
    Treadle(Server),
    Peer(Process),
}

/// Another router.
struct Process {
    child: Child,
    pid: u32,
    /// What it writes goes with it.
    _folder: TemporaryFolder,
}

impl Front {
    /// Starts it and waits until it is up.
    pub(in crate::bench) async fn start(
        system: &System,
        behind: &Behind<'_>,
    ) -> Result<Self, BenchError> {
        match &system.kind {
            Kind::Treadle { mode } => {
                let mut settings = vec![
                    format!("scheduler.time_scale={}", behind.time_scale),
                    "server.shutdown_grace_s=0".to_owned(),
                ];
                settings.extend(mode.map(|mode| format!("scheduler.mode={mode}")));
                let server = Server::gateway(&behind.engines.join(","), &settings).await?;
                Ok(Self {
                    url: server.url.clone(),
                    naming: Naming::default(),
                    running: Running::Treadle(server),
                })
            }
            Kind::Peer(peer) => Self::start_peer(peer, behind).await,
        }
    }

    async fn start_peer(peer: &Peer, behind: &Behind<'_>) -> Result<Self, BenchError> {
        let [port, spare_port] = free_ports().map_err(BenchError::Output)?;
        let words = peer.command.fill(&Places {
            engines: behind.engines,
            port,
            spare_port,
            capacity_tokens: behind.capacity_tokens,
            prefill_tokens_per_s: behind.prefill_tokens_per_s,
            time_scale: behind.time_scale,
        });
        let failed = |cause: String| BenchError::Process {
            what: peer.name.clone(),
            cause,
            command: words.join(" "),
        };
        let folder = TemporaryFolder::new().map_err(|error| failed(error.to_string()))?;
        let mut child = spawn(&words, &folder).map_err(|error| failed(error.to_string()))?;
        let pid = child
            .id()
            .ok_or_else(|| failed("it ended at once".to_owned()))?;
        let url = format!("http://127.0.0.1:{port}");
        until_ready(&mut child, &url, &peer.ready)
            .await
            .map_err(|cause| failed(format!("{cause}; {}", end_of_log(folder.path()))))?;
        Ok(Self {
            url,
            naming: peer.naming.clone(),
            running: Running::Peer(Process {
                child,
                pid,
                _folder: folder,
            }),
        })
    }

    /// CPU time that its processes have used so far, in seconds.
    pub(in crate::bench) fn cpu_s(&self) -> Result<f64, BenchError> {
        match &self.running {
            Running::Treadle(server) => server.family_cpu_s(),
            Running::Peer(process) => usage::family_cpu_s(process.pid),
        }
    }

    /// Ends it.
    pub(in crate::bench) async fn stop(self) {
        match self.running {
            Running::Treadle(server) => server.stop().await,
            Running::Peer(process) => process.stop().await,
        }
    }
}

impl Process {
    /// Tells it and all that it started to end, and ends it if it does not.
    async fn stop(mut self) {
        let family = usage::family(self.pid);
        let mut kill = Command::new("kill");
        kill.stdout(Stdio::null()).stderr(Stdio::null());
        kill.arg("-TERM").args(family.iter().map(u32::to_string));
        // Some of them may have ended by themselves.
        let _ = kill.status().await;
        if tokio::time::timeout(STOP_MAX, self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
    }
}

fn spawn(words: &[String], folder: &TemporaryFolder) -> std::io::Result<Child> {
    let none = std::io::ErrorKind::InvalidInput;
    let (program, arguments) = words.split_first().ok_or(none)?;
    let log = std::fs::File::create(folder.path().join(LOG))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder.path());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(log.try_clone()?).stderr(log);
    without_settings(&mut command);
    command.spawn()
}

async fn until_ready(child: &mut Child, url: &str, path: &str) -> Result<(), String> {
    let (began, upstream) = (Instant::now(), Upstream::new(CONNECT_TIMEOUT));
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        let answer = tokio::time::timeout(CONNECT_TIMEOUT, upstream.get(url, path)).await;
        if matches!(answer, Ok(Ok(response)) if response.status() == http::StatusCode::OK) {
            return Ok(());
        }
        if began.elapsed() > START_MAX {
            return Err(format!(
                "GET {path} did not answer 200 within {START_MAX:?}"
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn end_of_log(folder: &Path) -> String {
    let log = std::fs::read(folder.join(LOG)).unwrap_or_default();
    let end = &log[log.len().saturating_sub(LOG_BYTES_MAX)..];
    let end = String::from_utf8_lossy(end);
    match end.trim() {
        "" => "it wrote nothing".to_owned(),
        end => format!("it wrote: {end}"),
    }
}

/// Two ports that nothing listens on.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Both at once, so that they differ.
    let (one, other) = (bind()?, bind()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}
