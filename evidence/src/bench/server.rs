//! The processes under measurement: an engine and a gateway, each on its own, so that the use of
//! one is distinguished from that of the other.

use super::BenchError;
use super::folder::TemporaryFolder;
use super::program::{daemon_program, without_settings};
use super::usage;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// Time for a process to report its address.
const START_MAX: Duration = Duration::from_mins(1);
/// KV memory of the engine in tokens: never the bottleneck.
pub(super) const KV_TOKENS: u64 = 1_000_000_000;

/// A child process that serves HTTP; it ends when this is dropped.
pub(super) struct Server {
    process: Child,
    pid: u32,
    /// Its base URL.
    pub(super) url: String,
    /// Kept open: a process that writes into a closed pipe fails.
    _output: BufReader<ChildStdout>,
    /// Goes with the process.
    journal_folder: Option<TemporaryFolder>,
}

impl Server {
    /// An engine that answers at once.
    pub(super) async fn engine() -> Result<Self, BenchError> {
        let kv_tokens = KV_TOKENS.to_string();
        let args = [
            "engine-sim",
            "--instant",
            "--listen",
            "127.0.0.1:0",
            "--tokens-per-event",
            "1",
            "--kv-tokens",
            &kv_tokens,
        ];
        Self::start("the simulated engine", &args).await
    }

    /// An engine that gives tokens, a thousand times faster than the clock.
    pub(super) async fn token_engine() -> Result<Self, BenchError> {
        let kv_tokens = KV_TOKENS.to_string();
        let args = [
            "engine-sim",
            "--listen",
            "127.0.0.1:0",
            "--time-scale",
            "1000",
            "--kv-tokens",
            &kv_tokens,
        ];
        Self::start("the simulated engine", &args).await
    }

    /// A gateway in front of engines, their URLs with commas between, with these settings
    /// (`KEY=VALUE`) and its defaults, except for the location of the journal.
    pub(super) async fn gateway(engines: &str, settings: &[String]) -> Result<Self, BenchError> {
        let folder = TemporaryFolder::new().map_err(|error| BenchError::Process {
            what: "the gateway".to_owned(),
            cause: format!("no folder for its journal: {error}"),
            command: "treadle serve".to_owned(),
        })?;
        let store = format!("store.path={}", folder.path().join("journal.db").display());
        let mut args = vec![
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--engine",
            engines,
            "--set",
            &store,
            "--set",
            "logging.filter=error",
        ];
        args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let mut gateway = Self::start("the gateway", &args).await?;
        gateway.journal_folder = Some(folder);
        Ok(gateway)
    }

    async fn start(what: &str, args: &[&str]) -> Result<Self, BenchError> {
        let failed = |cause: String| BenchError::Process {
            what: what.to_owned(),
            cause,
            command: format!("treadle {}", args.join(" ")),
        };
        let program = daemon_program().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(args).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        without_settings(&mut command);
        let mut process = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (Some(pid), Some(output)) = (process.id(), process.stdout.take()) else {
            return Err(failed("it ended at once".to_owned()));
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        let read = tokio::time::timeout(START_MAX, output.read_line(&mut line)).await;
        let url = read.ok().and_then(|_| url_in(&line));
        let url = url.ok_or_else(|| failed(format!("it said `{}`", line.trim())))?;
        Ok(Self {
            process,
            pid,
            url,
            _output: output,
            journal_folder: None,
        })
    }

    /// CPU time that it and the processes that it started have used so far, in seconds.
    pub(super) fn family_cpu_s(&self) -> Result<f64, BenchError> {
        usage::family_cpu_s(self.pid)
    }

    /// Memory that it holds at present, in MiB.
    pub(super) fn resident_mib(&self) -> Result<f64, BenchError> {
        usage::resident_mib(self.pid)
    }

    /// The files of its journal, if they are in a folder of its own.
    pub(super) fn journal_files(&self) -> std::io::Result<Vec<PathBuf>> {
        let Some(folder) = &self.journal_folder else {
            return Ok(Vec::new());
        };
        let entries = std::fs::read_dir(folder.path())?;
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<PathBuf>>>()?;
        paths.retain(|path| path.is_file());
        Ok(paths)
    }

    /// Ends it.
    pub(super) async fn stop(mut self) {
        // It holds nothing worth keeping.
        let _ = self.process.kill().await;
    }
}

/// The base URL in a server's first output: a field of a JSON object, or the first one in a text.
fn url_in(text: &str) -> Option<String> {
    if let Ok(said) = serde_json::from_str::<serde_json::Value>(text) {
        return said["url"].as_str().map(str::to_owned);
    }
    let url = &text[text.find("http://")?..];
    let part = |c: char| c.is_ascii_alphanumeric() || ":/.-[]".contains(c);
    let end = url.find(|c| !part(c)).unwrap_or(url.len());
    Some(url[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_found_in_server_output() {
        let said = "simulated engine (instant) on http://127.0.0.1:4711\n";
        assert_eq!(url_in(said).as_deref(), Some("http://127.0.0.1:4711"));
        let said = r#"{"engines":["http://127.0.0.1:9"],"url":"http://[::1]:80"}"#;
        assert_eq!(url_in(said).as_deref(), Some("http://[::1]:80"));
        assert_eq!(url_in("error: no"), None);
    }
}
