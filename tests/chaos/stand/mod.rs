//! What is killed: servers, daemons and engines, each with a place that it comes back to.

mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use treadle_services::{Psql, Servers, Service};

use crate::agents::MODEL;
use crate::error::ChaosError;
use crate::exchange::Client;
use crate::options::Options;
use process::Process;

/// The schema of the run.
pub(crate) const SCHEMA: &str = "chaos";
/// Fast engines, so that a run takes minutes.
const TIME_SCALE: &str = "20";
/// KV memory of each: less than all programs together would like.
const KV_TOKENS: &str = "60000";
/// Below the ports of outgoing connections, one of which could sit on a daemon's port while it is
/// down.
const PORTS: std::ops::Range<u16> = 12_000..20_000;
/// How long a process may take to answer.
const START_MAX: Duration = Duration::from_mins(1);
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// All of it.
pub(crate) struct Stand {
    /// PostgreSQL and RabbitMQ.
    pub(crate) servers: Arc<Servers>,
    /// The database.
    pub(crate) psql: Psql,
    /// The broker, unless it is left out.
    pub(crate) amqp_url: Option<String>,
    binary: PathBuf,
    settings: Vec<String>,
    daemons: Vec<Process>,
    engines: Vec<Process>,
    client: Client,
}

impl Stand {
    /// Starts the servers; everything else is started one by one.
    pub(crate) async fn start(options: &Options, folder: &Path) -> Result<Self, ChaosError> {
        let mut services = vec![Service::Postgres];
        services.extend((!options.without_broker).then_some(Service::Rabbitmq));
        let has_broker = services.len() > 1;
        let servers = tokio::task::spawn_blocking(move || Servers::start(&services));
        let servers = servers
            .await
            .map_err(|error| ChaosError::Nonsense(error.to_string()))??;
        let postgres_url = servers.url(Service::Postgres)?;
        let amqp_url = has_broker
            .then(|| servers.url(Service::Rabbitmq))
            .transpose()?;
        let binary = options.binary()?;
        let ports = free_ports(usize::from(options.daemons + options.engines))?;
        let (daemon_ports, engine_ports) = ports.split_at(usize::from(options.daemons));
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let engines: Vec<Process> = engine_ports
            .iter()
            .enumerate()
            .map(|(n, port)| {
                let arguments = engine_arguments(*port);
                Process::new(format!("engine-{n}"), url(port), &binary, arguments, folder)
            })
            .collect();
        let urls: Vec<String> = engine_ports.iter().map(url).collect();
        let mut settings = vec![
            format!("store.url={postgres_url}"),
            format!("store.schema={SCHEMA}"),
            // The checker wants all of it.
            "store.keep_events=1000000000".to_owned(),
            "store.snapshot_events=5000".to_owned(),
        ];
        settings.extend(options.settings.iter().cloned());
        let daemon = |(n, port): (usize, &u16)| {
            let mut own = settings.clone();
            own.extend(amqp_url.iter().map(|url| format!("broker.url={url}")));
            if options.daemons > 1 {
                own.extend(cluster_settings(n, &url(port)));
            }
            let arguments = daemon_arguments(*port, &urls, &own);
            Process::new(format!("daemon-{n}"), url(port), &binary, arguments, folder)
        };
        let daemons = daemon_ports.iter().enumerate().map(daemon).collect();
        Ok(Self {
            psql: Psql::new(postgres_url),
            servers: Arc::new(servers),
            amqp_url,
            daemons,
            engines,
            settings,
            binary,
            client: Client::new(),
        })
    }

    /// Starts engines, then daemons, and waits until all answer.
    pub(crate) async fn start_processes(&mut self) -> Result<(), ChaosError> {
        for n in 0..self.engines.len() {
            self.start_engine(n).await?;
        }
        for n in 0..self.daemons.len() {
            self.start_daemon(n).await?;
        }
        Ok(())
    }

    /// Base URLs of the daemons.
    pub(crate) fn daemon_urls(&self) -> Vec<String> {
        self.daemons
            .iter()
            .map(|daemon| daemon.url.clone())
            .collect()
    }

    /// The daemon that schedules, as the database has it.
    pub(crate) fn leader(&self) -> Result<usize, ChaosError> {
        if self.daemons.len() == 1 {
            return Ok(0);
        }
        let rows = self
            .psql
            .rows(&format!("SELECT name FROM {SCHEMA}.leader"))?;
        let name = rows.first().and_then(|row| row.first());
        let name = name.map(String::as_str).unwrap_or_default();
        let found = self.daemons.iter().position(|daemon| daemon.name == name);
        found.ok_or_else(|| {
            ChaosError::Nonsense(format!("the leader is `{name}`, which is no daemon"))
        })
    }

    pub(crate) async fn kill_daemon(&mut self, n: usize) -> Result<(), ChaosError> {
        self.daemons[n].kill().await
    }

    pub(crate) async fn start_daemon(&mut self, n: usize) -> Result<(), ChaosError> {
        self.daemons[n].start()?;
        answers(&self.client, &mut self.daemons[n]).await
    }

    pub(crate) async fn kill_engine(&mut self, n: usize) -> Result<(), ChaosError> {
        self.engines[n].kill().await
    }

    pub(crate) async fn start_engine(&mut self, n: usize) -> Result<(), ChaosError> {
        self.engines[n].start()?;
        answers(&self.client, &mut self.engines[n]).await
    }

    /// Numbers of engines and daemons.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.engines.len(), self.daemons.len())
    }

    /// Starts daemons again that have ended by themselves, as a supervisor would; how many.
    pub(crate) fn supervise(&mut self) -> Result<u64, ChaosError> {
        let mut ended = 0;
        for process in self.daemons.iter_mut().chain(&mut self.engines) {
            ended += u64::from(process.revive()?);
        }
        Ok(ended)
    }

    /// A figure of `/metrics`, of the first daemon that tells.
    pub(crate) async fn metric(&self, name: &str) -> Option<u64> {
        for daemon in &self.daemons {
            let Some(page) = self.client.get(&daemon.url, "/metrics").await else {
                continue;
            };
            let row = page
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            if let Some(value) = row.and_then(|value| value.trim().parse::<f64>().ok()) {
                return Some(value as u64);
            }
        }
        None
    }

    /// Asks the daemons to stop, and waits until they and the engines are gone; how many daemons
    /// ended badly.
    pub(crate) async fn stop_processes(&mut self) -> Result<u64, ChaosError> {
        let mut bad = 0;
        for daemon in &mut self.daemons {
            bad += u64::from(!daemon.terminate().await?);
        }
        for engine in &mut self.engines {
            engine.kill().await?;
        }
        Ok(bad)
    }

    /// `treadle replay` of what the database has, as JSON.
    pub(crate) async fn replay(&self, from_start: bool) -> Result<serde_json::Value, ChaosError> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(["replay", "--json"]);
        if from_start {
            command.arg("--from-start");
        }
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        let output = command
            .output()
            .await
            .map_err(ChaosError::file("treadle replay"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(ChaosError::Nonsense(format!("treadle replay: {said}")));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| ChaosError::Nonsense(format!("treadle replay: {error}")))
    }
}

async fn answers(client: &Client, process: &mut Process) -> Result<(), ChaosError> {
    let began = Instant::now();
    while client.get(&process.url, "/health").await.is_none() {
        if began.elapsed() > START_MAX {
            return Err(ChaosError::Start {
                name: process.name.clone(),
                after_s: START_MAX.as_secs(),
                log: process.log.clone(),
            });
        }
        process.revive()?;
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Ok(())
}

fn engine_arguments(port: u16) -> Vec<String> {
    let listen = format!("127.0.0.1:{port}");
    let words = [
        "engine-sim",
        "--listen",
        &listen,
        "--model",
        MODEL,
        "--time-scale",
        TIME_SCALE,
        "--kv-tokens",
        KV_TOKENS,
        "--tokens-per-event",
        "4",
    ];
    words.map(str::to_owned).to_vec()
}

fn daemon_arguments(port: u16, engines: &[String], settings: &[String]) -> Vec<String> {
    let listen = format!("127.0.0.1:{port}");
    let mut words = vec!["serve".to_owned(), "--listen".to_owned(), listen];
    for engine in engines {
        words.extend(["--engine".to_owned(), engine.clone()]);
    }
    for setting in settings {
        words.extend(["--set".to_owned(), setting.clone()]);
    }
    words
}

fn cluster_settings(number: usize, url: &str) -> [String; 4] {
    [
        "cluster.role=all".to_owned(),
        format!("cluster.name=daemon-{number}"),
        format!("cluster.advertise={url}"),
        "cluster.secret=the same for all daemons of this run".to_owned(),
    ]
}

/// Ports that nobody listens on, from a place that differs from run to run.
fn free_ports(wanted: usize) -> Result<Vec<u16>, ChaosError> {
    let span = PORTS.end - PORTS.start;
    let offset = (std::process::id() * 32 % u32::from(span)) as u16;
    let candidates = (0..span).map(|n| PORTS.start + (offset + n) % span);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports: Vec<u16> = candidates.filter(is_free).take(wanted).collect();
    if ports.len() < wanted {
        return Err(ChaosError::Nonsense(format!(
            "there are no {wanted} free ports from {} to {}",
            PORTS.start, PORTS.end
        )));
    }
    Ok(ports)
}
