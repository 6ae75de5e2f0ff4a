//! `treadle-bench restart`: how long a daemon with many live programs takes to serve again after it
//! was killed under load.

use super::events::psql::psql;
use super::figures::{Figure, Report, Target};
use super::folder::TemporaryFolder;
use super::latencies::Latencies;
use super::program::{daemon_program, without_settings};
use super::server::Server;
use super::{BenchError, report_progress};
use clap::Args;
use futures_util::future::try_join_all;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use treadle_demo::exchange::{get, post};
use treadle_http::Upstream;

/// What the slowest restart should take at most, in seconds.
const READY: Target = Target::AtMost(2.0);
/// Time for a daemon to become healthy.
const START_MAX: Duration = Duration::from_mins(5);
/// Between two questions for its health.
const POLL_PAUSE: Duration = Duration::from_millis(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests at a time.
const CLIENTS: u32 = 64;

const NOTE: &str = "ready is the time from the start of the process until /health first answers 200, \
    with the default settings of snapshots. Each program has taken a step, all stay live, and the \
    load takes further ones, 64 at a time, until the daemon is killed (SIGKILL). A daemon that comes \
    back with fewer programs gives no figures. The engine is simulated and answers at once.";

/// Arguments of `treadle-bench restart`.
#[derive(Args, Clone, Debug)]
pub(super) struct RestartArgs {
    /// Live programs.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    programs: u32,
    /// How often the daemon is killed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    kills: u32,
    /// Seconds of load before each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// PostgreSQL, in which a schema is made and removed, instead of a file of SQLite.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl RestartArgs {
    /// Kills a daemon and starts it again, several times.
    pub(super) async fn run(mut self, quick: bool) -> Result<Report, BenchError> {
        if quick {
            (self.programs, self.kills, self.seconds) = (500, 2, 1);
        }
        let mut report = Report::new("restart");
        report.note(NOTE);
        report.setting("programs", self.programs);
        report.setting("kills", self.kills);
        report.setting("seconds", self.seconds);
        let store = self.store.as_ref().map_or("sqlite", |_| "postgresql");
        report.setting("store", store);
        let place = Place::new(self.store.clone())?;
        let measured = self.measure(&place).await;
        // Whatever came of it, nothing stays behind.
        place.remove().await;
        let mut times = measured?;
        let median = times.percentile(0.5).as_secs_f64();
        report.push(Figure::new("ready.p50", median, "s"));
        let worst = times.percentile(1.0).as_secs_f64();
        report.push(Figure::new("ready.worst", worst, "s").target(READY));
        Ok(report)
    }

    async fn measure(&self, place: &Place) -> Result<Latencies, BenchError> {
        let engine = Server::engine().await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Free again once the listener is dropped: a daemon comes back at its address.
        let address = listener.local_addr()?;
        drop(listener);
        let start = || Daemon::start(place, address, &engine.url);
        let (mut daemon, _) = start().await?;
        report_progress(&format!("restart: {} programs ...", self.programs));
        daemon.fill(self.programs).await?;
        let mut times = Latencies::default();
        for kill in 1..=self.kills {
            report_progress(&format!("restart: kill {kill} of {} ...", self.kills));
            let load = Duration::from_secs(self.seconds);
            daemon.kill_under_load(self.programs, load).await?;
            let (next, ready) = start().await?;
            daemon = next;
            times.push(ready);
            daemon.client.check(self.programs).await?;
        }
        drop(daemon);
        engine.stop().await;
        Ok(times)
    }
}

/// The location of the daemon's state.
enum Place {
    File(TemporaryFolder),
    Database { url: String, schema: String },
}

impl Place {
    fn new(url: Option<String>) -> Result<Self, BenchError> {
        Ok(match url {
            Some(url) => Self::Database {
                url,
                schema: format!("treadle_bench_restart_{}", std::process::id()),
            },
            None => Self::File(TemporaryFolder::new().map_err(|error| unstarted(&error))?),
        })
    }

    /// Names it to a daemon. A URL may have a password, which other users must not see.
    fn tell(&self, command: &mut Command) {
        let setting = match self {
            Self::File(folder) => {
                format!("store.path={}", folder.path().join("journal.db").display())
            }
            Self::Database { url, schema } => {
                command.env("TREADLE_STORE__URL", url);
                format!("store.schema={schema}")
            }
        };
        command.args(["--set", &setting]);
    }

    async fn remove(self) {
        let Self::Database { url, schema } = self else {
            return;
        };
        let drop =
            format!("SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE");
        if let Err(error) = psql(&url, &drop).await {
            report_progress(&format!("the schema {schema} stays: {error}"));
        }
    }
}

/// A daemon, and a client of it.
struct Daemon {
    process: Child,
    client: Client,
}

impl Daemon {
    /// Starts one; gives the time until it is healthy, too.
    async fn start(
        place: &Place,
        address: SocketAddr,
        engine: &str,
    ) -> Result<(Self, Duration), BenchError> {
        let program = daemon_program().map_err(|error| unstarted(&error))?;
        let mut command = Command::new(program);
        let address = address.to_string();
        command.args(["serve", "--listen", &address, "--engine", engine]);
        command.args(["--set", "logging.filter=error"]);
        command.kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        without_settings(&mut command);
        place.tell(&mut command);
        let began = Instant::now();
        let mut process = command.spawn().map_err(|error| unstarted(&error))?;
        let client = Client {
            url: format!("http://{address}"),
            upstream: Upstream::new(CONNECT_TIMEOUT),
        };
        while !client.sees_health().await {
            if let Ok(Some(status)) = process.try_wait() {
                return Err(unstarted(&status));
            }
            if began.elapsed() > START_MAX {
                let limit_s = START_MAX.as_secs();
                return Err(unstarted(&format!("not healthy within {limit_s} s")));
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
        Ok((Self { process, client }, began.elapsed()))
    }

    /// Lets each program take a step.
    async fn fill(&self, programs: u32) -> Result<(), BenchError> {
        let next = AtomicU32::new(0);
        let clients = (0..CLIENTS).map(|_| self.client.fill(&next, programs));
        let filled = try_join_all(clients).await;
        filled.map(drop).map_err(unanswered)
    }

    /// Kills it after this time, while programs take steps.
    async fn kill_under_load(&mut self, programs: u32, load: Duration) -> Result<(), BenchError> {
        let (process, client) = (&mut self.process, &self.client);
        let (next, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|_| client.load(&next, programs, &is_over));
        let kill = async {
            tokio::time::sleep(load).await;
            is_over.store(true, Relaxed);
            process.kill().await
        };
        let (stepped, killed) = tokio::join!(try_join_all(clients), kill);
        stepped.map_err(unanswered)?;
        killed.map_err(|error| BenchError::Ended(error.to_string()))
    }
}

/// A client of the daemon.
struct Client {
    url: String,
    upstream: Upstream,
}

impl Client {
    async fn sees_health(&self) -> bool {
        let answer = self.upstream.get(&self.url, "/health").await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }

    async fn step(&self, program: u32) -> Result<(), String> {
        let body = json!({"model": "treadle-sim", "program_id": format!("p{program}"),
            "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
        let (path, headers) = ("/v1/chat/completions", HeaderMap::new());
        let answer = post(&self.upstream, &self.url, path, &headers, body.to_string());
        answer.await.map(drop)
    }

    /// Takes the first step of the next programs.
    async fn fill(&self, next: &AtomicU32, programs: u32) -> Result<(), String> {
        loop {
            let program = next.fetch_add(1, Relaxed);
            if program >= programs {
                return Ok(());
            }
            self.step(program).await?;
        }
    }

    /// Takes steps of all programs in turn until the daemon is killed.
    async fn load(
        &self,
        next: &AtomicU32,
        programs: u32,
        is_over: &AtomicBool,
    ) -> Result<(), String> {
        loop {
            let program = next.fetch_add(1, Relaxed) % programs;
            if let Err(error) = self.step(program).await {
                let was_killed = is_over.load(Relaxed);
                return if was_killed { Ok(()) } else { Err(error) };
            }
        }
    }

    /// Fails if the daemon lacks a program.
    async fn check(&self, programs: u32) -> Result<(), BenchError> {
        let health = get(&self.upstream, &self.url, "/health").await;
        let health = health.map_err(unanswered)?;
        let health: Value = serde_json::from_slice(&health).unwrap_or_default();
        let live = &health["programs_count"];
        if *live == json!(programs) {
            return Ok(());
        }
        let what = format!("{live} of {programs} programs were live after a restart");
        Err(BenchError::Ended(what))
    }
}

fn unstarted(cause: &dyn Display) -> BenchError {
    BenchError::Process {
        what: "the daemon".to_owned(),
        cause: cause.to_string(),
        command: "treadle serve".to_owned(),
    }
}

fn unanswered(first: String) -> BenchError {
    BenchError::Requests {
        case: "restart".to_owned(),
        count: 1,
        first,
    }
}
