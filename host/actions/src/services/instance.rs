//! One service in one place.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Declared, Lifecycle, Place, ServiceSpec};
use crate::gpus::Gpus;
use crate::markers::Markers;
use crate::process::{Ended, MARK, ProcessOrder, Report, Stop, Supervisors, inherited, mark};
use crate::requests::{Answer, Message, Requests, Server};

/// Pause between two checks whether a service is ready.
pub(super) const READY_LOOK: Duration = Duration::from_millis(50);
/// Bytes kept of a service's output.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Bytes of that output in an error message.
const WORDS_MAX: usize = 400;

/// The resources that services are started with.
#[derive(Clone)]
pub(crate) struct InstanceContext {
    pub(crate) supervisors: Arc<Supervisors>,
    pub(crate) markers: Arc<Markers>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) inherit: Vec<String>,
    pub(crate) workdir: PathBuf,
    pub(crate) grace: Duration,
    pub(crate) gpus: Gpus,
}

/// One service in one place.
pub(super) struct Instance {
    pub(super) declared: Arc<Declared>,
    place: Place,
    port: u16,
    process: Option<Process>,
}

struct Process {
    stop: watch::Sender<Stop>,
    task: JoinHandle<Ended>,
}

impl Instance {
    /// Starts a service in its place, without waiting until it is ready.
    pub(super) async fn start(
        declared: Arc<Declared>,
        place: &Place,
        restores: bool,
        with: &InstanceContext,
    ) -> Result<Self, String> {
        let mut instance = Self {
            place: place.clone(),
            port: free_port().map_err(|error| format!("no port for a service: {error}"))?,
            process: None,
            declared: declared.clone(),
        };
        match &declared.spec.lifecycle {
            Lifecycle::Process { command } => {
                let (stop, stopped) = watch::channel(Stop::Not);
                let running = instance.run(command, None, stopped, with);
                let task = tokio::spawn(running);
                instance.process = Some(Process { stop, task });
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

    /// Stops it.
    pub(super) async fn stop(&mut self, with: &InstanceContext) -> Result<(), String> {
        if let Some(process) = self.process.take() {
            let _ = process.stop.send(Stop::Shutdown);
            let _ = process.task.await;
        }
        match &self.declared.spec.lifecycle {
            Lifecycle::Process { .. } => Ok(()),
            Lifecycle::Commands { stop, .. } => self.command(stop, with).await,
            Lifecycle::Control { url } => self.control(url, "stop", with).await,
        }
    }

    /// Its address.
    pub(super) fn server(&self) -> Server {
        let Declared { tenant, spec } = &*self.declared;
        match &spec.url {
            Some(url) => Self::remote(url, tenant),
            None => Server {
                base: format!("http://127.0.0.1:{}", self.port),
                tenant: None,
            },
        }
    }

    fn remote(url: &str, tenant: &str) -> Server {
        let (base, tenant) = (url.to_owned(), Some(tenant.to_owned()));
        Server { base, tenant }
    }

    /// Whether its process has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.task.is_finished())
    }

    /// How it ended, and its last output.
    pub(super) async fn last_words(&mut self) -> String {
        match self.process.take() {
            Some(process) => match process.task.await {
                Ok(ended) => words(&ended),
                Err(error) => error.to_string(),
            },
            None => "it ended".to_owned(),
        }
    }

    fn spec(&self) -> &ServiceSpec {
        &self.declared.spec
    }

    fn environment(&self, mark: &str, with: &InstanceContext) -> BTreeMap<String, String> {
        let mut env = inherited(&with.inherit);
        env.extend(self.spec().env.clone());
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        set("TREADLE_SERVICE", self.spec().name.clone());
        set("TREADLE_PORT", self.port.to_string());
        set(MARK, mark.to_owned());
        if let Some(chunk) = self.place.chunk() {
            with.gpus.announce(chunk, &mut set);
        }
        env
    }

    /// Runs a command to its end.
    fn run(
        &self,
        command: &[String],
        run_max: Option<Duration>,
        stop: watch::Receiver<Stop>,
        with: &InstanceContext,
    ) -> impl Future<Output = Ended> + use<> {
        let mark = mark();
        let order = ProcessOrder {
            command: command.to_vec(),
            env: self.environment(&mark, with),
            cwd: with.workdir.clone(),
            run_ms_max: run_max.map(|max| max.as_millis() as u64),
            grace_ms: with.grace.as_millis() as u64,
            cores: Vec::new(),
            memory_bytes_max: None,
            output_bytes_max: OUTPUT_BYTES_MAX,
            cgroup: None,
            cgroup_home: None,
        };
        let (name, tenant) = (self.spec().name.clone(), &self.declared.tenant);
        // No tenant's name has an underscore.
        let instance = format!("{tenant}_{name}-{}", self.place);
        let (supervisors, markers) = (with.supervisors.clone(), with.markers.clone());
        async move {
            let began = async {
                let supervisor = supervisors.take().await?;
                let cgroup = supervisor.cgroup();
                let left = markers.leftover(&mark, Some(supervisor.identity()), cgroup);
                markers.service_began(&instance, &left)?;
                Ok::<_, std::io::Error>((supervisor, left))
            };
            let ended = match began.await {
                Ok((supervisor, left)) => {
                    let began = std::future::ready(());
                    supervisors
                        .run(supervisor, &order, b"", left, stop, began)
                        .await
                }
                Err(error) => Ended {
                    report: Report::Failed(error.to_string()),
                    output: Vec::new(),
                },
            };
            if !matches!(ended.report, Report::Stopped | Report::Exited(0)) {
                tracing::warn!(
                    service = name,
                    "a service ended unexpectedly: {}",
                    words(&ended)
                );
            }
            ended
        }
    }

    async fn command(&self, command: &[String], with: &InstanceContext) -> Result<(), String> {
        // Dropping the sender would stop the command, so it is kept until the end.
        let (_stop, stopped) = watch::channel(Stop::Not);
        let limit = Some(self.spec().ready_max());
        let ended = self.run(command, limit, stopped, with).await;
        if ended.report == Report::Exited(0) {
            return Ok(());
        }
        let name = &self.spec().name;
        let command = command.first().map_or("", String::as_str);
        Err(format!("{command} of {name}: {}", words(&ended)))
    }

    async fn control(&self, url: &str, what: &str, with: &InstanceContext) -> Result<(), String> {
        let Declared { tenant, spec } = &*self.declared;
        let json = serde_json::json!({
            "service": spec.name,
            "devices": self.place.chunk().map(|chunk| with.gpus.of(chunk)),
            "port": self.port,
        });
        let message = Message::post(&format!("/{what}"), &json);
        let server = Self::remote(url, tenant);
        let answer = with.requests.send(&server, message, spec.ready_max()).await;
        let cause = match answer {
            Answer::Answered { status, .. } if status.is_success() => return Ok(()),
            Answer::Answered { status, .. } => status.to_string(),
            Answer::Failed(cause) => cause,
            Answer::TimedOut => "no answer in time".to_owned(),
        };
        Err(format!("{what} of {} at {url}: {cause}", spec.name))
    }
}

/// A free port chosen by the system, which does not soon choose it again.
fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn words(ended: &Ended) -> String {
    let output = String::from_utf8_lossy(&ended.output);
    let output = output.trim();
    let from = output.len().saturating_sub(WORDS_MAX);
    let from = (from..=output.len()).find(|at| output.is_char_boundary(*at));
    let last = &output[from.unwrap_or(output.len())..];
    let how = match &ended.report {
        Report::Exited(code) => format!("it exited with {code}"),
        Report::Killed(signal) => format!("signal {signal} ended it"),
        Report::TimedOut => "it took too long".to_owned(),
        Report::OutOfMemory => "it ran out of memory".to_owned(),
        Report::Stopped => "it was stopped".to_owned(),
        Report::Failed(cause) => cause.clone(),
        Report::Lost => "its supervisor is gone".to_owned(),
    };
    if last.is_empty() {
        how
    } else {
        format!("{how}: {last}")
    }
}
