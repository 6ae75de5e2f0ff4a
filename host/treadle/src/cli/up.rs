//! `treadle up`: a daemon with simulated engines in one process, for a first try on a laptop.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tokio::net::TcpListener;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_engine_model::engine::EngineProfile;
use treadle_model::endpoint_of;

use super::error::CliError;
use super::logs;
use super::output::print_text;
use super::serve::{Signals, listen_flag, print_first_token, stop};
use super::settings::Settings;
use treadle_config::{Config, Endpoint, StoreConfig};
use treadle_engine_sim::{EngineSim, EngineSimError, EngineSimHandle, EngineSimOptions, RANKS_MAX};
use treadle_server::start::Daemon;

/// Maximum number of simulated engines; each may use a thread.
const ENGINES_MAX: i64 = 64;

/// Arguments of `treadle up`.
#[derive(Args, Clone, Debug)]
pub(super) struct UpArgs {
    #[command(flatten)]
    settings: Settings,
    /// Number of simulated engines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=ENGINES_MAX))]
    engines: u16,
    /// Address for the daemon to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Profile of the simulated engines.
    #[arg(long, default_value = "qwen3-32b-h100", value_parser = PossibleValuesParser::new(EngineProfile::NAMES))]
    profile: String,
    /// KV memory of each engine in tokens, instead of the profile's.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    kv_tokens: Option<u64>,
    /// Ranks of data parallelism of each engine, each with a KV memory of this size; they step
    /// together, and each is a worker.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    ranks: u32,
    /// Virtual seconds per real second, for engines and scheduler alike; by default
    /// `scheduler.time_scale`.
    #[arg(long)]
    time_scale: Option<f64>,
    /// Name of the model that the engines report.
    #[arg(long, default_value = "treadle-sim")]
    model: String,
    /// Let the engines answer at once, without simulating their speed.
    #[arg(long)]
    instant: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl UpArgs {
    /// Serves until a signal stops it.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut config = self.config()?;
        let traces = logs::start(&config)?;
        let mut signals = Signals::listen()?;
        let engines = self.start_engines(config.scheduler.time_scale).await?;
        config.engines.endpoints = engines.iter().map(|e| Endpoint::at(e.url())).collect();
        let daemon = Daemon::start(&config).await?;
        print_first_token(&daemon);
        self.announce(&daemon, &config)?;
        tokio::select! {
            () = signals.next() => {}
            cause = daemon.ended() => return Err(cause.into()),
        }
        forget_engines(&daemon, &config).await;
        let stopped = stop(daemon.stop(), &mut signals).await;
        for engine in engines {
            engine.shutdown().await;
        }
        traces.stop().await;
        stopped
    }

    fn config(&self) -> Result<Config, CliError> {
        let mut flags = listen_flag(self.listen);
        if let Some(scale) = self.time_scale {
            flags.push(format!("scheduler.time_scale={scale:?}"));
        }
        let mut config = self.settings.load(flags)?;
        // Simulated history must not mix with that of real engines.
        if config.store.path == StoreConfig::default().path {
            "memory".clone_into(&mut config.store.path);
        }
        Ok(config)
    }

    async fn start_engines(&self, time_scale: f64) -> Result<Vec<EngineSimHandle>, CliError> {
        let profile = EngineProfile::named(&self.profile);
        let profile = profile.ok_or(EngineSimError::Option("profile is unknown"))?;
        let mut engines = Vec::with_capacity(usize::from(self.engines));
        for number in 0..self.engines {
            let options = EngineSimOptions {
                profile: profile.clone(),
                kv_tokens: self.kv_tokens,
                ranks: self.ranks,
                time_scale,
                model: self.model.clone(),
                seed: 1 + u64::from(number),
                instant: self.instant,
                ..EngineSimOptions::default()
            };
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let listener = listener.map_err(|cause| CliError::System {
                what: "no port is free for a simulated engine",
                cause,
            })?;
            engines.push(EngineSim::serve(listener, options)?);
        }
        Ok(engines)
    }

    fn announce(&self, daemon: &Daemon, config: &Config) -> Result<(), CliError> {
        let (url, scale) = (daemon.url(), config.scheduler.time_scale);
        let endpoints = config.engines.endpoints.iter();
        let engines: Vec<&str> = endpoints.map(|each| each.url.as_str()).collect();
        if self.json {
            let line = json!({
                "url": url, "engines": engines, "simulated": true, "profile": self.profile,
                "time_scale": scale,
            });
            return print_text(&line.to_string());
        }
        let mut text = format!("treadle listens on {url}\n");
        let speed = if self.instant {
            "answers at once".to_owned()
        } else {
            format!("{} at {scale}x time", self.profile)
        };
        for engine in engines {
            // Writing to a string can't fail.
            let _ = writeln!(text, "  SIMULATED engine on {engine} ({speed})");
        }
        if treadle_console::is_built() {
            let _ = writeln!(text, "  the console, for a browser: {url}/");
        }
        text.push_str(&first_request(&url, &self.model));
        print_text(&text)
    }
}

/// What to do next: a first request, and how to look at its program.
fn first_request(url: &str, model: &str) -> String {
    let body = json!({
        "model": model, "program_id": "first", "max_tokens": 32,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    // Escapes a single quote for the shell.
    let body = body.to_string().replace('\'', r"'\''");
    format!(
        "Send a first request, then look at its program:\n  \
         curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'\n  \
         treadle programs --url {url}\n\
         Ctrl-C stops all of it."
    )
}

/// Removes the simulated engines from a persistent store.
async fn forget_engines(daemon: &Daemon, config: &Config) {
    if config.store.path == "memory" {
        return;
    }
    let urls: Vec<String> = config
        .engines
        .endpoints
        .iter()
        .map(|e| e.url.clone())
        .collect();
    let workers = daemon.app.driver.workers().await.unwrap_or_default();
    let ours = workers
        .iter()
        .filter(|w| urls.iter().any(|url| url == endpoint_of(&w.url).0));
    for worker in ours.map(|w| w.id) {
        daemon.app.engines.forget(worker);
        daemon
            .app
            .driver
            .event(Event::Program(ProgramEvent::WorkerRemoved { worker }));
    }
}
