//! Engines started here. A task per engine registers it while it answers, restarts it when it exits
//! on its own, and stops it at the end or when a new plan has no such engine.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::super::client::{Client, escaped};
use super::super::error::CliError;
use super::super::output::print_text;
use super::plan::Plan;
use super::replan::Replanner;
use treadle_http::Upstream;

/// Pause between two polls of an engine that is starting.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Pauses before an engine is restarted: the first, and the longest.
const BACKOFF: [Duration; 2] = [Duration::from_millis(500), Duration::from_mins(1)];
/// An engine that was up for this long counts as stable: its failures count anew.
const STEADY: Duration = Duration::from_mins(5);

/// How to start engines.
pub(super) struct Template {
    pub(super) command: Vec<String>,
    pub(super) first_port: u16,
    pub(super) host: String,
    pub(super) health: String,
    pub(super) ready: Duration,
    pub(super) restarts_max: u32,
    pub(super) grace: Duration,
    pub(super) kind: Option<String>,
    pub(super) json: bool,
}

/// An engine of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Engine {
    url: String,
    degree: u32,
    command: Vec<String>,
}

impl Template {
    /// The plan's engines, each on its own GPUs.
    pub(super) fn engines(&self, plan: &Plan) -> Result<Vec<Engine>, CliError> {
        let mut first_gpu = 0;
        let engine = |(index, degree): (usize, u32)| {
            // The port follows from the first GPU, so no two running engines share it.
            let port = u64::from(self.first_port) + u64::from(first_gpu);
            if port > u64::from(u16::MAX) {
                return Err(CliError::Usage(format!(
                    "engine {index} would have port {port}; give a lower --first-port"
                )));
            }
            let gpus: Vec<String> = (first_gpu..first_gpu + degree)
                .map(|g| g.to_string())
                .collect();
            first_gpu += degree;
            let fill = |part: &String| {
                part.replace("{port}", &port.to_string())
                    .replace("{degree}", &degree.to_string())
                    .replace("{index}", &index.to_string())
                    .replace("{gpus}", &gpus.join(","))
            };
            Ok(Engine {
                url: format!("http://{}:{port}", self.host),
                degree,
                command: self.command.iter().map(fill).collect(),
            })
        };
        plan.workers().enumerate().map(engine).collect()
    }

    fn report(&self, event: &str, engine: &Engine, more: &Value) -> Result<(), CliError> {
        if self.json {
            let line = json!({
                "event": event, "url": engine.url, "degree": engine.degree, "more": more,
            });
            return print_text(&line.to_string());
        }
        print_text(&format!(
            "{} (degree {}) {event} {more}",
            engine.url, engine.degree
        ))
    }
}

/// An engine whose task has ended, and how.
type Ended = (Engine, Result<(), CliError>);

/// All engines started here.
pub(super) struct Fleet {
    client: Arc<Client>,
    template: Arc<Template>,
    /// One task per engine.
    keepers: JoinSet<Ended>,
    /// Stop signals of the running engines.
    stops: Vec<(Engine, watch::Sender<bool>)>,
    /// The error of the last engine that could not be kept running.
    failed: Result<(), CliError>,
}

impl Fleet {
    /// Starts a plan's engines.
    pub(super) fn start(
        client: Arc<Client>,
        template: Arc<Template>,
        plan: &Plan,
    ) -> Result<Self, CliError> {
        let engines = template.engines(plan)?;
        let mut fleet = Self {
            client,
            template,
            keepers: JoinSet::new(),
            stops: Vec::new(),
            failed: Ok(()),
        };
        for engine in engines {
            fleet.add(engine);
        }
        Ok(fleet)
    }

    fn add(&mut self, engine: Engine) {
        let (stop, stopped) = watch::channel(false);
        let keeper = Keeper {
            client: self.client.clone(),
            template: self.template.clone(),
            upstream: Upstream::new(Duration::from_secs(2)),
            engine: engine.clone(),
            stop: stopped,
        };
        self.stops.push((engine.clone(), stop));
        self.keepers
            .spawn(async move { (engine, keeper.keep().await) });
    }

    /// Runs until `stop_requested` completes, then stops all engines. Fails if one could not be
    /// kept running.
    pub(super) async fn run(
        mut self,
        stop_requested: impl Future<Output = ()>,
        replanner: Option<Replanner>,
    ) -> Result<(), CliError> {
        let mut stop_requested = std::pin::pin!(stop_requested);
        while !self.keepers.is_empty() {
            let plan = async {
                match &replanner {
                    Some(replanner) => replanner.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stop_requested => break,
                ended = self.keepers.join_next() => self.note(ended),
                plan = plan => if let Err(error) = self.reshape(&plan).await {
                    tracing::warn!(%error, "the current plan is kept");
                },
            }
        }
        self.stop(|_| false).await;
        self.failed
    }

    /// Switches to another plan; engines that are in both stay.
    async fn reshape(&mut self, plan: &Plan) -> Result<(), CliError> {
        let engines = self.template.engines(plan)?;
        self.stop(|engine| engines.contains(engine)).await;
        for engine in engines {
            if self.stops.iter().all(|(kept, _)| *kept != engine) {
                self.add(engine);
            }
        }
        Ok(())
    }

    /// Stops all engines except those that stay, and waits for their ends.
    async fn stop(&mut self, stays: impl Fn(&Engine) -> bool) {
        for (engine, stop) in &self.stops {
            if !stays(engine) {
                let _ = stop.send(true);
            }
        }
        while self.stops.iter().any(|(engine, _)| !stays(engine)) {
            let ended = self.keepers.join_next().await;
            if ended.is_none() {
                return;
            }
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Option<Result<Ended, JoinError>>) {
        match ended {
            Some(Ok((engine, ended))) => {
                self.stops.retain(|(kept, _)| *kept != engine);
                if ended.is_err() {
                    self.failed = ended;
                }
            }
            Some(Err(_)) => {
                self.failed = Err(CliError::Failed("the task of an engine panicked".into()));
            }
            None => {}
        }
    }
}

/// The task of one engine.
struct Keeper {
    client: Arc<Client>,
    template: Arc<Template>,
    upstream: Upstream,
    engine: Engine,
    stop: watch::Receiver<bool>,
}

/// Why an engine's run ended.
enum Run {
    Stopped,
    Ended(String),
}

impl Keeper {
    async fn keep(mut self) -> Result<(), CliError> {
        let (mut restarts, mut pause) = (0, BACKOFF[0]);
        loop {
            let started = Instant::now();
            let why = match self.run_once().await? {
                Run::Stopped => return Ok(()),
                Run::Ended(why) => why,
            };
            self.template
                .report("ended", &self.engine, &json!({"why": why}))?;
            if started.elapsed() >= STEADY {
                (restarts, pause) = (0, BACKOFF[0]);
            }
            if restarts >= self.template.restarts_max {
                return Err(CliError::Failed(format!(
                    "the engine at {} was started {} times, the last time {why}; check its output",
                    self.engine.url,
                    restarts + 1
                )));
            }
            restarts += 1;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop_requested(&mut self.stop) => return Ok(()),
            }
            pause = (pause * 2).min(BACKOFF[1]);
        }
    }

    async fn run_once(&mut self) -> Result<Run, CliError> {
        let [program, arguments @ ..] = self.engine.command.as_slice() else {
            return Ok(Run::Stopped);
        };
        // A process group of its own, so that its children are stopped with it and the terminal's
        // interrupt does not reach it.
        let spawned = Command::new(program)
            .args(arguments)
            .stdout(std::process::Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(cause) => return Ok(Run::Ended(format!("`{program}` did not start: {cause}"))),
        };
        self.template
            .report("started", &self.engine, &json!({"pid": child.id()}))?;
        let mut stop = self.stop.clone();
        let ready = tokio::select! {
            ready = self.until_ready() => ready,
            ended = child.wait() => return Ok(Run::Ended(word(ended))),
            () = stop_requested(&mut stop) => return self.end(child, Run::Stopped).await,
        };
        if !ready {
            let seconds = self.template.ready.as_secs();
            let why = format!("it was not ready within {seconds} s");
            return self.end(child, Run::Ended(why)).await;
        }
        if let Err(error) = self.register().await {
            self.end(child, Run::Stopped).await?;
            return Err(error);
        }
        let run = tokio::select! {
            ended = child.wait() => Run::Ended(word(ended)),
            () = stop_requested(&mut stop) => Run::Stopped,
        };
        self.deregister().await;
        self.end(child, run).await
    }

    async fn until_ready(&self) -> bool {
        let looks = async {
            loop {
                let look = self.upstream.get(&self.engine.url, &self.template.health);
                if look.await.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        tokio::time::timeout(self.template.ready, looks)
            .await
            .is_ok()
    }

    async fn register(&self) -> Result<(), CliError> {
        let body = json!({
            "url": self.engine.url, "kind": self.template.kind, "gpus": self.engine.degree,
        });
        let answer = self.client.command(Method::POST, "/api/v1/workers", &body);
        let answer = answer.await?;
        self.template
            .report("registered", &self.engine, &answer["worker_id"])
    }

    /// Removes the engine from the daemon. Does nothing if the daemon is gone.
    async fn deregister(&self) {
        let path = format!("/workers/{}", escaped(&self.engine.url));
        if let Err(error) = self.client.command(Method::DELETE, &path, &json!({})).await {
            tracing::warn!(url = self.engine.url, %error, "an engine could not be deregistered");
        }
    }

    /// Stops the engine: by a signal first, killed after the grace period.
    async fn end(&self, mut child: Child, run: Run) -> Result<Run, CliError> {
        if let Some(id) = child.id() {
            signal("-TERM", id).await;
            if tokio::time::timeout(self.template.grace, child.wait())
                .await
                .is_err()
            {
                signal("-KILL", id).await;
                let _ = child.wait().await;
            }
        }
        if matches!(run, Run::Stopped) {
            self.template
                .report("stopped", &self.engine, &Value::Null)?;
        }
        Ok(run)
    }
}

/// Signals a process's group.
async fn signal(signal: &str, id: u32) {
    let group = format!("-{id}");
    let _ = Command::new("kill")
        .args([signal, "--", &group])
        .status()
        .await;
}

fn word(ended: std::io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => format!("it ended: {status}"),
        Err(cause) => format!("it could not be waited for: {cause}"),
    }
}

async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    // The task that would report its end is gone, so the engine must end too.
    let _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_ports_and_devices_of_their_own() {
        let template = Template {
            command: ["e", "{port}", "{degree}", "{index}", "{gpus}"]
                .map(str::to_owned)
                .into(),
            first_port: 7_000,
            host: "h".into(),
            health: "/".into(),
            ready: Duration::ZERO,
            restarts_max: 0,
            grace: Duration::ZERO,
            kind: None,
            json: false,
        };
        let engines = template.engines(&"2x1,1x2".parse().expect("a plan"));
        let engines = engines.expect("ports enough");
        let commands: Vec<String> = engines.iter().map(|e| e.command.join(" ")).collect();
        assert_eq!(commands, ["e 7000 2 0 0,1", "e 7002 1 1 2", "e 7003 1 2 3"]);
        assert_eq!(engines[2].url, "http://h:7003");
        let high = Template {
            first_port: u16::MAX,
            ..template
        };
        assert!(high.engines(&"1x2".parse().expect("a plan")).is_err());
    }
}
