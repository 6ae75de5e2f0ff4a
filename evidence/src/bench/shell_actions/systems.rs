//! Who runs commands: treadle, or the benchmark itself.

use super::super::BenchError;
use super::super::latencies::Latencies;
use super::work::System;
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::process::Command;
use treadle_demo::exchange::{get, post};
use treadle_http::Upstream;

const ACTIONS: &str = "/api/v1/actions";
const SANDBOXES: &str = "/api/v1/sandboxes";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Prints the clock, in seconds with microseconds, as its first act.
const CLOCK: [&str; 3] = ["bash", "-c", "echo $EPOCHREALTIME"];

/// Cores are a reservation's: commands are children of this process, and run at once.
pub(super) struct Reserved;

impl System for Reserved {
    async fn run(&self, _: u32, script: Arc<str>) -> Result<(), String> {
        child(&script).await
    }
}

/// Runs a shell's script as a child.
pub(super) async fn child(script: &str) -> Result<(), String> {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    let status = command.status().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("a command ended with {status}"))
}

/// Cores are shared per action by a daemon.
pub(super) struct Shared {
    url: String,
    upstream: Upstream,
    /// That of each program; none where commands are plain processes.
    sandboxes: Vec<String>,
}

impl Shared {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            upstream: Upstream::new(CONNECT_TIMEOUT),
            sandboxes: Vec::new(),
        }
    }

    /// Makes a sandbox for each program, and waits until a command has run in each.
    pub(super) async fn with_sandboxes(mut self, programs: u32) -> Result<Self, String> {
        for _ in 0..programs {
            let headers = http::HeaderMap::new();
            let made = post(
                &self.upstream,
                &self.url,
                SANDBOXES,
                &headers,
                "{}".to_owned(),
            );
            let made: Value =
                serde_json::from_slice(&made.await?).map_err(|error| error.to_string())?;
            let id = made["id"].as_str().ok_or("a sandbox has no name")?;
            self.sandboxes.push(id.to_owned());
        }
        for program in 0..programs {
            self.act(program, &["true"]).await?;
        }
        Ok(self)
    }

    async fn act(&self, program: u32, command: &[&str]) -> Result<Value, String> {
        let run = match self.sandboxes.get(program as usize) {
            Some(id) => json!({"sandbox": {"id": id, "command": command}}),
            None => json!({"process": {"command": command}}),
        };
        let action = json!({"kind": "sh", "run": run});
        let body = action.to_string();
        let headers = http::HeaderMap::new();
        let answer = post(&self.upstream, &self.url, ACTIONS, &headers, body).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let path = format!("{ACTIONS}/{}?wait_s=3600", answer["action"]);
        let view = get(&self.upstream, &self.url, &path).await?;
        let view: Value = serde_json::from_slice(&view).map_err(|error| error.to_string())?;
        if view["outcome"] == json!({"outcome": "exited", "code": 0}) {
            return Ok(view);
        }
        Err(format!("an action ended with {}", view["outcome"]))
    }

    /// Times from the request until the command reads the clock, one action after the other.
    pub(super) async fn overhead(&self, actions: u32) -> Result<Latencies, BenchError> {
        let failed = |first: String| BenchError::Requests {
            case: "overhead".to_owned(),
            count: 1,
            first,
        };
        let mut times = Latencies::default();
        for _ in 0..actions {
            let asked = SystemTime::now().duration_since(UNIX_EPOCH);
            let view = self.act(0, &CLOCK).await.map_err(failed)?;
            let text = view["output"]["text"].as_str().unwrap_or_default();
            let began = text
                .trim()
                .parse::<f64>()
                .map_err(|error| failed(format!("a command printed `{text}`: {error}")))?;
            let began = Duration::from_secs_f64(began);
            times.push(began.saturating_sub(asked.unwrap_or_default()));
        }
        Ok(times)
    }
}

impl System for Shared {
    async fn run(&self, program: u32, script: Arc<str>) -> Result<(), String> {
        self.act(program, &["sh", "-c", &script]).await.map(drop)
    }
}
