//! One service on some devices.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_http::Upstream;

use super::{Devices, Lifecycle, ServiceSpec};
use crate::markers::Markers;
use crate::process::{Ended, MARK, Order, Report, Stop, SupervisorCommand, Waiting, inherited};

/// Bytes that are kept of what a service writes.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Bytes of that which a cause has room for.
const WORDS_MAX: usize = 400;

/// What services are started with.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) supervisor: SupervisorCommand,
    pub(super) inherit: Vec<String>,
    pub(super) workdir: PathBuf,
    pub(super) grace: Duration,
    pub(super) markers: Arc<Markers>,
    pub(super) upstream: Upstream,
}

/// One service on some devices.
pub(super) struct Instance {
    spec: ServiceSpec,
    devices: Devices,
    process: Option<Process>,
}

struct Process {
    stop: watch::Sender<Stop>,
    task: JoinHandle<Ended>,
}

impl Instance {
    /// Brings a service onto devices; it is not ready yet.
    pub(super) async fn start(
        spec: &ServiceSpec,
        devices: &Devices,
        restores: bool,
        with: &Surroundings,
    ) -> Result<Self, String> {
        let mut instance = Self {
            spec: spec.clone(),
            devices: devices.clone(),
            process: None,
        };
        match &spec.lifecycle {
            Lifecycle::Process { command } => {
                instance.process = Some(instance.process(command, with)?);
            }
            Lifecycle::Commands { start, restore, .. } => {
                let restore = restore.as_ref().filter(|_| restores);
                instance.command(restore.unwrap_or(start), with).await?;
            }
            Lifecycle::Control { url } => {
                let what = if restores { "restore" } else { "start" };
                instance.control(url, what, with).await?;
            }
        }
        Ok(instance)
    }

    /// Takes it away.
    pub(super) async fn stop(mut self, with: &Surroundings) -> Result<(), String> {
        if let Some(process) = self.process.take() {
            let _ = process.stop.send(Stop::Shutdown);
            let _ = process.task.await;
        }
        match &self.spec.lifecycle {
            Lifecycle::Process { .. } => Ok(()),
            Lifecycle::Commands { stop, .. } => self.command(stop, with).await,
            Lifecycle::Control { url } => self.control(url, "stop", with).await,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Whether its process has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.task.is_finished())
    }

    /// How it ended and what it wrote last.
    pub(super) async fn last_words(&mut self) -> String {
        match self.process.take() {
            Some(process) => match process.task.await {
                Ok(ended) => words(&ended),
                Err(error) => error.to_string(),
            },
            None => "it ended".to_owned(),
        }
    }

    fn order(&self, command: &[String], run_max: Option<Duration>, with: &Surroundings) -> Order {
        let instance = format!("{}-{}", self.spec.name, self.devices);
        let pids = with.markers.service_pids(&instance);
        let devices = self.devices.list();
        let port = self.devices.port(self.spec.port_first);
        let mut env: BTreeMap<_, _> = inherited(&with.inherit);
        env.extend(self.spec.env.clone());
        env.extend(
            [
                ("TREADLE_SERVICE", self.spec.name.clone()),
                ("TREADLE_DEVICES", devices.clone()),
                ("CUDA_VISIBLE_DEVICES", devices),
                ("TREADLE_PORT", port.to_string()),
                (MARK, pids.to_string_lossy().into_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        Order {
            command: command.to_vec(),
            env,
            cwd: with.workdir.clone(),
            stdin_bytes: 0,
            run_ms_max: run_max.map(|max| max.as_millis() as u64),
            grace_ms: with.grace.as_millis() as u64,
            cores: Vec::new(),
            memory_bytes_max: None,
            cgroup: None,
            cgroup_home: None,
            pids,
        }
    }

    fn process(&self, command: &[String], with: &Surroundings) -> Result<Process, String> {
        let order = self.order(command, None, with);
        let waiting = Waiting::start(&with.supervisor).map_err(|error| error.to_string())?;
        let (stop, stopped) = watch::channel(Stop::Not);
        let name = self.spec.name.clone();
        let task = tokio::spawn(async move {
            let ended = waiting.run(&order, b"", OUTPUT_BYTES_MAX, stopped).await;
            if ended.report != Report::Stopped {
                tracing::warn!(service = name, "a service ended: {}", words(&ended));
            }
            ended
        });
        Ok(Process { stop, task })
    }

    async fn command(&self, command: &[String], with: &Surroundings) -> Result<(), String> {
        let order = self.order(command, Some(self.spec.ready_max), with);
        let waiting = Waiting::start(&with.supervisor).map_err(|error| error.to_string())?;
        // The sender stays until the end: dropping it would be a reason to stop.
        let (_stop, stopped) = watch::channel(Stop::Not);
        let ended = waiting.run(&order, b"", OUTPUT_BYTES_MAX, stopped).await;
        if ended.report == (Report::Exited { code: 0 }) {
            return Ok(());
        }
        let name = &self.spec.name;
        let command = command.first().map_or("", String::as_str);
        Err(format!("{command} of {name}: {}", words(&ended)))
    }

    async fn control(&self, url: &str, what: &str, with: &Surroundings) -> Result<(), String> {
        let json = serde_json::json!({
            "service": self.spec.name,
            "devices": self.devices.list(),
            "port": self.devices.port(self.spec.port_first),
        });
        let mut headers = HeaderMap::new();
        let json_type = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json_type);
        let (path, body) = (format!("/{what}"), Bytes::from(json.to_string()));
        let sent = with.upstream.send(Method::POST, url, &path, &headers, body);
        let told = |cause: &dyn std::fmt::Display| {
            format!("{what} of {} at {url}: {cause}", self.spec.name)
        };
        let answer = tokio::time::timeout(self.spec.ready_max, sent).await;
        match answer {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(answer)) => Err(told(&answer.status())),
            Ok(Err(error)) => Err(told(&error)),
            Err(_) => Err(told(&"no answer in time")),
        }
    }
}

fn words(ended: &Ended) -> String {
    let output = String::from_utf8_lossy(&ended.output);
    let output = output.trim();
    let from = output.len().saturating_sub(WORDS_MAX);
    let from = (from..=output.len()).find(|at| output.is_char_boundary(*at));
    let last = &output[from.unwrap_or(output.len())..];
    let how = match &ended.report {
        Report::Exited { code } => format!("it exited with {code}"),
        Report::Killed { signal } => format!("signal {signal} ended it"),
        Report::TimedOut => "it took too long".to_owned(),
        Report::OutOfMemory => "it ran out of memory".to_owned(),
        Report::Stopped => "it was stopped".to_owned(),
        Report::Failed { cause } => cause.clone(),
    };
    if last.is_empty() {
        how
    } else {
        format!("{how}: {last}")
    }
}
