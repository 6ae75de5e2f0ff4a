//! The command line `treadle`.
//!
//! One file per command. A command that fails prints one line, what is wrong and the remedy, and
//! exits with code 1; with 2 if it was called wrongly, or with 3 if it is a daemon whose store was
//! deleted, moved or replaced.

mod access;
mod actions;
mod audit;
mod client;
mod config;
mod connection;
mod doctor;
mod environment;
mod error;
mod events;
mod local_token;
mod logs;
mod memory;
mod node_agent;
mod nodes;
#[cfg(test)]
mod options;
mod output;
mod plugin;
mod plugin_check;
mod programs;
mod progress;
mod provision;
mod replay;
mod sandboxes;
mod serve;
mod settings;
mod status;
mod store;
mod tenants;
mod tokens;
mod traces;
mod training;
mod up;
mod weights;
mod whatif;
mod workers;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use treadle_policy_runtime::compiler_main;
use treadle_registry::COMPILE_SUBCOMMAND;
use treadle_server::start::raise_files;
use treadle_server::{KEEP_SUBCOMMAND, SUPERVISE_SUBCOMMAND, sandbox_main, supervisor_main};

use error::CliError;
use treadle_calibrate::CalibrateArgs;
use treadle_config::Config;
use treadle_demo::DemoArgs;
use treadle_engine_sim::EngineSimArgs;
use treadle_rollouts::sim::SimArgs;
use treadle_trust::written;

/// A control plane between RL jobs and LLM inference engines.
#[derive(Parser, Clone, Debug)]
#[command(name = "treadle", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Serve programs with inference engines.
    Serve(serve::ServeArgs),
    /// Serve programs with simulated engines, for a first try.
    Up(up::UpArgs),
    /// Compare plain routing, sticky routing and treadle on simulated engines.
    Demo(Box<DemoArgs>),
    /// Serve a simulated inference engine over HTTP.
    EngineSim(EngineSimArgs),
    /// Measure an inference engine, and write a profile that the simulator reads.
    Calibrate(Box<CalibrateArgs>),
    /// Simulate a rollout on a cluster of GPUs, in virtual time.
    Sim(Box<SimArgs>),
    /// Show the health of a daemon and its engines.
    Status(status::StatusArgs),
    /// Check everything that a daemon depends on, and print remedies.
    Doctor(doctor::DoctorArgs),
    /// Show programs, their steps, and the decisions about them.
    Programs(programs::ProgramsArgs),
    /// Run actions, and list past ones.
    Actions(actions::ActionsArgs),
    /// Create, fork and remove sandboxes, and run commands in them.
    Sandboxes(sandboxes::SandboxesArgs),
    /// List, cordon and drain machines that provide sandboxes.
    Nodes(nodes::NodesArgs),
    /// Provide this machine's sandboxes to a daemon.
    NodeAgent(Box<node_agent::NodeAgentArgs>),
    /// List training runs, show who waits for whom, and check a run from outside.
    Training(training::TrainingArgs),
    /// Have engines load a version of a training run's weights, and show what each holds.
    Weights(weights::WeightsArgs),
    /// List, add, remove and start engines, and show what their memory is used for.
    Workers(workers::WorkersArgs),
    /// Show the journal, or replay it.
    Events(events::EventsArgs),
    /// Create, check, upload and bind policies.
    Plugin(plugin::PluginArgs),
    /// Replay recorded work under other policies in virtual time, and compare them.
    WhatIf(whatif::WhatIfArgs),
    /// Manage tokens and tenants, and show the audit log.
    Access(access::AccessArgs),
    /// Migrate the store's schema.
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Show the configuration, or the reference of its keys.
    Config(config::ConfigArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// The command line, for generated documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments of the process and runs the command.
pub fn main() -> ExitCode {
    // A daemon's child process that compiles an upload limits its own resources, so it must not
    // have other threads.
    match std::env::args().nth(1).as_deref() {
        Some(COMPILE_SUBCOMMAND) => {
            return compiler_main(std::io::stdin().lock(), std::io::stdout().lock());
        }
        // So must a child process that runs an action.
        Some(SUPERVISE_SUBCOMMAND) => return supervisor_main(),
        // Or one that keeps a sandbox.
        Some(KEEP_SUBCOMMAND) => {
            let args: Vec<_> = std::env::args_os().skip(2).collect();
            return sandbox_main(&args);
        }
        _ => {}
    }
    let cli = Cli::try_parse().unwrap_or_else(|mut error| {
        hide_secrets(&mut error);
        error.exit()
    });
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let what = "no threads can be started";
            return ended(Err(CliError::System { what, cause }));
        }
    };
    let result = runtime.block_on(cli.command.run());
    // Remaining background tasks have nobody to report to.
    runtime.shutdown_background();
    ended(result)
}

/// Hides what may be a password in a value that an error of the arguments shows.
fn hide_secrets(error: &mut clap::Error) {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let shown = written(value);
        error.insert(ContextKind::InvalidValue, ContextValue::String(shown));
    }
}

fn ended(result: Result<(), CliError>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if !error.is_silent() {
        output::print_notice(&format!("error: {error}"));
    }
    error.exit_code()
}

impl Command {
    async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Serve(args) => args.run().await,
            Self::Up(args) => args.run().await,
            Self::Demo(args) => Ok(args.run().await?),
            Self::EngineSim(args) => {
                logs::start(&Config::default())?;
                raise_files();
                Ok(args.run().await?)
            }
            Self::Calibrate(args) => Ok(Box::pin(args.run()).await?),
            Self::Sim(args) => Ok(args.run().await?),
            Self::Status(args) => args.run().await,
            Self::Programs(args) => args.run().await,
            Self::Actions(args) => args.run().await,
            Self::Sandboxes(args) => args.run().await,
            Self::Nodes(args) => args.run().await,
            Self::NodeAgent(args) => Box::pin(args.run()).await,
            Self::Training(args) => args.run().await,
            Self::Weights(args) => args.run().await,
            Self::Workers(args) => args.run().await,
            Self::Events(args) => args.run().await,
            Self::Plugin(args) => args.run().await,
            Self::Access(args) => args.run().await,
            Self::Config(args) => args.run(),
            Self::WhatIf(args) => Box::pin(args.run()).await,
            Self::Store(command) => command.run().await,
            Self::Doctor(args) => Box::pin(args.run()).await,
            Self::Completions { shell } => completions(shell),
        }
    }
}

fn completions(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "treadle", &mut script);
    output::print_text(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        command().debug_assert();
    }

    #[test]
    fn an_error_of_the_arguments_hides_passwords() {
        let line = "treadle status --url http://u:hunter2@a:99999";
        let mut error = Cli::try_parse_from(line.split(' ')).expect_err(line);
        hide_secrets(&mut error);
        let text = error.to_string();
        let shown = "http://u:[redacted]@a:99999";
        assert!(text.contains(shown) && text.contains("65535"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn flags_are_accepted_before_and_after_a_subcommand() {
        for line in [
            "treadle programs --json release p",
            "treadle programs release p --url http://a:1 --json",
            "treadle programs p --steps -n 5",
            "treadle programs -- release",
            "treadle workers",
            "treadle training",
            "treadle training show j --json",
            "treadle training check --job j --batches folder",
            "treadle weights publish /w --job j --version 1",
            "treadle weights status --job j --json",
            "treadle weights publish /w --job j --version 1 --store",
            "treadle weights history --job j --lineage 1",
            "treadle weights pull --job j --version 2",
            "treadle weights verify --job j --version 2 --lineage 0",
            "treadle weights collect --job j",
            "treadle workers --json memory",
            "treadle workers memory --json",
            "treadle workers add http://e:1 --kind vllm --capacity-tokens 10",
            "treadle workers provision --plan 4x1,1x4 --url http://a:1 -- vllm serve m --port {port}",
            "treadle workers provision --ask columns.json --json",
            "treadle events tail --follow --program p --after 5 -n 3",
            "treadle plugin bind lru --config-json {}",
            "treadle plugin check file --offline --json",
            "treadle access tokens",
            "treadle access tokens create ci --scope job --expires-in 30d --tenant acme --token tr_x",
            "treadle access tokens create boss --scope admin --whole-daemon",
            "treadle access tokens rotate 1f --json",
            "treadle access tenants create acme --limit live_programs=5 --limit plugins=none",
            "treadle access tenants set acme --limit unsigned_plugins=false",
            "treadle access audit --action token.created -n 5 --before 7",
            "treadle serve --engine http://a:1,http://b:1 --engine http://c:1 --set server.listen=[::]:1",
            "treadle up --engines 3 --listen 127.0.0.1:0 --kv-tokens 5000 --time-scale 20",
            "treadle events replay --store x --until 5 --from-start",
            "treadle store migrate --dry-run --json --set store.path=x",
            "treadle doctor --json --url http://a:1",
            "treadle what-if compare --trace t --policies least-load,x=a.wasm:c.json+b.wasm --json",
            "treadle what-if compare --store s --from 3 --to 9 --sets f --profile p.json --seeds 5",
            "treadle what-if run --policies recorded,lru-eviction@1 --job j --detach",
            "treadle what-if cancel whatif-1 --json",
            "treadle demo --simulate --json",
            "treadle sim --task search --model qwen3-32b --gpus 16 --prompts 20 --report --json",
            "treadle sim --trace f --history g --system verl --priority heddle --fail 0@5:30",
            "treadle calibrate --url http://a:1 --model m --out p.json --json --validate",
            "treadle calibrate --from p.json --validate 3 --seed 5",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "treadle sim --task chess",
            "treadle sim --trace f --prompts 5",
            "treadle sim --history f",
            "treadle sim --fail 0@5",
            "treadle sim --report --fail 0@5:6",
            "treadle sim --gpu A100",
            "treadle calibrate --from p.json --out q.json",
            "treadle calibrate --repeats 0",
            "treadle",
            "treadle programs --steps",
            "treadle programs p --steps --decisions",
            "treadle programs p --all",
            "treadle up --engines 0",
            "treadle status --url localhost:8300",
            "treadle plugin bind p --config-json []",
            "treadle workers add http://e:1 --kind tgi",
            "treadle events",
            "treadle access",
            "treadle store",
            "treadle workers provision",
            "treadle workers provision --plan 4",
            "treadle access tokens create ci",
            "treadle access tokens create ci --scope root",
            "treadle access tokens create ci --scope job --expires-in 5x",
            "treadle access tenants set acme --limit plugins",
            "treadle what-if compare --policies a",
            "treadle what-if compare --trace t --store s --policies a",
            "treadle what-if run",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
