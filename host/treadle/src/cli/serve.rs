//! `treadle serve`: runs the daemon in the foreground.

use std::io::Write;
use std::net::SocketAddr;

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;
use super::logs;
use super::output::print_text;
use super::settings::Settings;
use treadle_config::{Config, Role};
use treadle_server::cluster::Member;
use treadle_server::start::Daemon;

/// Arguments of `treadle serve`.
#[derive(Args, Clone, Debug)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    settings: Settings,
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Engines, instead of those in the configuration; can be given several times.
    #[arg(long = "engine", value_name = "URL", value_delimiter = ',')]
    engines: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ServeArgs {
    /// Serves until a signal stops it.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut flags = listen_flag(self.listen);
        if !self.engines.is_empty() {
            flags.push(format!("engines.endpoints={}", self.engines.join(",")));
        }
        let config = self.settings.load(flags)?;
        let traces = logs::start(&config)?;
        let mut signals = Signals::listen()?;
        let served = if config.cluster.role == Role::Single {
            serve_alone(&config, self.json, &mut signals).await
        } else {
            serve_beside_others(&config, self.json, &mut signals).await
        };
        traces.stop().await;
        served
    }
}

/// Runs a single daemon.
async fn serve_alone(config: &Config, json: bool, signals: &mut Signals) -> Result<(), CliError> {
    let daemon = Daemon::start(config).await?;
    print_first_token(&daemon);
    announce(&daemon, json).await?;
    tokio::select! {
        () = signals.next() => {}
        cause = daemon.ended() => return Err(cause.into()),
    }
    stop(daemon.stop(), signals).await
}

/// Runs one daemon of a cluster.
async fn serve_beside_others(
    config: &Config,
    json: bool,
    signals: &mut Signals,
) -> Result<(), CliError> {
    let member = Member::start(config).await?;
    let url = member.url();
    if json {
        print_text(&json!({"url": url}).to_string())?;
    } else {
        let role = match config.cluster.role {
            Role::Gateway => "a gateway",
            Role::All | Role::Single => "a gateway, and schedules when no other daemon does",
        };
        print_text(&format!("treadle listens on {url} as {role}"))?;
    }
    tokio::select! {
        () = signals.next() => {}
        cause = member.ended() => return Err(cause.into()),
    }
    stop(member.stop(), signals).await
}

/// Prints the secret of a newly created admin on standard error, if that is a terminal; it is never
/// logged or returned.
pub(super) fn print_first_token(daemon: &Daemon) {
    let Some(first) = &daemon.first_token else {
        return;
    };
    let place = match &first.file {
        Some(file) => format!("it is in {} too, where `treadle` finds it", file.display()),
        None => format!(
            "set {} to it to manage this daemon",
            super::environment::TOKEN
        ),
    };
    // Without a standard error it can't be printed.
    let mut out = std::io::stderr().lock();
    let _ = writeln!(
        out,
        "the admin's token, shown once: {}\n{place}",
        first.secret
    );
}

/// `--listen` as an assignment of the configuration.
pub(super) fn listen_flag(listen: Option<SocketAddr>) -> Vec<String> {
    let assignment = listen.map(|address| format!("server.listen={address}"));
    assignment.into_iter().collect()
}

/// URLs of the daemon's engines.
pub(super) async fn engine_urls(daemon: &Daemon) -> Vec<String> {
    let workers = daemon.app.driver.workers().await.unwrap_or_default();
    workers
        .iter()
        .map(|worker| worker.url.to_string())
        .collect()
}

async fn announce(daemon: &Daemon, json: bool) -> Result<(), CliError> {
    let (url, engines) = (daemon.url(), engine_urls(daemon).await);
    if json {
        // One line, for scripts that wait for the port.
        return print_text(&json!({"url": url, "engines": engines}).to_string());
    }
    let with = if engines.is_empty() {
        format!("without an engine; add one with `treadle workers add URL --url {url}`")
    } else {
        format!("engines: {}", engines.join(", "))
    };
    print_text(&format!("treadle listens on {url}, {with}"))
}

/// Waits for requests in flight; a second signal ends the wait.
pub(super) async fn stop(
    stopped: impl Future<Output = ()>,
    signals: &mut Signals,
) -> Result<(), CliError> {
    tracing::info!("stopping after the requests in flight; another signal stops at once");
    tokio::select! {
        () = stopped => Ok(()),
        () = signals.next() => Err(CliError::Failed(
            "stopped before the requests in flight ended; set `server.shutdown_grace_s` lower to wait less".into(),
        )),
    }
}

/// The signals that stop the daemon.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Signals from now on.
    pub(super) fn listen() -> Result<Self, CliError> {
        let listen = |kind| {
            let what = "can't listen for signals";
            signal(kind).map_err(|cause| CliError::System { what, cause })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
