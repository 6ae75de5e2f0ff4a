//! The command line `treadle`.
//!
//! One file per command. A command that fails prints one line, what is wrong
//! and the remedy, and ends with exit code 1, or 2 if it was called wrongly.

mod audit;
mod client;
mod config;
mod connection;
mod doctor;
mod environment;
mod error;
mod events;
mod lab;
mod local_token;
mod logs;
mod memory;
mod migrate;
mod output;
mod plugin;
mod plugin_check;
mod programs;
mod progress;
mod provision;
mod replay;
mod serve;
mod settings;
mod status;
mod tenants;
mod tokens;
mod up;
mod workers;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use treadle_policy_runtime::compiler_main;
use treadle_registry::COMPILE_SUBCOMMAND;

use error::CliError;
use treadle_config::LoggingConfig;
use treadle_demo::DemoArgs;
use treadle_engine_sim::EngineSimArgs;

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
    /// Serve programs with simulated engines, to try things out.
    Up(up::UpArgs),
    /// Compare plain routing, sticky routing and treadle on simulated engines.
    Demo(Box<DemoArgs>),
    /// Serve a simulated inference engine over HTTP.
    EngineSim(EngineSimArgs),
    /// Show whether a daemon and its engines are well.
    Status(status::StatusArgs),
    /// Show programs, their steps, and the decisions about them.
    Programs(programs::ProgramsArgs),
    /// List, add and remove engines.
    Workers(workers::WorkersArgs),
    /// Show what the engines' KV memory is used for.
    Memory(memory::MemoryArgs),
    /// Start engines after a plan of parallelism, or show the plan.
    Provision(Box<provision::ProvisionArgs>),
    /// Show the journal.
    Events(events::EventsArgs),
    /// Check, upload and bind policies.
    Plugin(plugin::PluginArgs),
    /// Make, rotate and revoke tokens.
    Tokens(tokens::TokensArgs),
    /// List tenants, make them, change their limits.
    Tenants(tenants::TenantsArgs),
    /// Show who changed what.
    Audit(audit::AuditArgs),
    /// Show the configuration, or the reference of its keys.
    Config(config::ConfigArgs),
    /// Replay the journal of a store file and print a checksum of the state.
    Replay(replay::ReplayArgs),
    /// Repeat recorded work under other policies, in virtual time, and compare them.
    Lab(lab::LabArgs),
    /// Bring the schema of the store up to date.
    Migrate(migrate::MigrateArgs),
    /// Look at everything that a daemon works with, and say what to do.
    Doctor(doctor::DoctorArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// The command line, for those who describe it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Reads the arguments of the process and does what they say.
pub fn main() -> ExitCode {
    // A child of a daemon that compiles one upload limits itself and nothing
    // else, so it must not have other threads.
    if std::env::args()
        .nth(1)
        .is_some_and(|arg| arg == COMPILE_SUBCOMMAND)
    {
        return compiler_main(std::io::stdin().lock(), std::io::stdout().lock());
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let what = "no threads can be started";
            return ended(Err(CliError::System { what, cause }));
        }
    };
    let result = runtime.block_on(cli.command.run());
    // What still runs in the background has nobody left to report to.
    runtime.shutdown_background();
    ended(result)
}

fn ended(result: Result<(), CliError>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if !error.is_silent() {
        // Nothing can be told to somebody who has closed this one as well.
        let _ = writeln!(std::io::stderr(), "error: {error}");
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
                logs::start(&LoggingConfig::default())?;
                Ok(args.run().await?)
            }
            Self::Status(args) => args.run().await,
            Self::Programs(args) => args.run().await,
            Self::Workers(args) => args.run().await,
            Self::Memory(args) => args.run().await,
            Self::Provision(args) => Box::pin(args.run()).await,
            Self::Events(args) => args.run().await,
            Self::Plugin(args) => args.run().await,
            Self::Tokens(args) => args.run().await,
            Self::Tenants(args) => args.run().await,
            Self::Audit(args) => args.run().await,
            Self::Config(args) => args.run(),
            Self::Replay(args) => args.run().await,
            Self::Lab(args) => Box::pin(args.run()).await,
            Self::Migrate(args) => args.run().await,
            Self::Doctor(args) => Box::pin(args.run()).await,
            Self::Completions { shell } => completions(shell),
        }
    }
}

fn completions(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "treadle", &mut script);
    output::say(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        command().debug_assert();
    }

    #[test]
    fn flags_may_stand_before_and_after_a_subcommand() {
        for line in [
            "treadle programs --json release p",
            "treadle programs release p --url http://a:1 --json",
            "treadle programs p --steps -n 5",
            "treadle programs -- release",
            "treadle workers",
            "treadle memory --json",
            "treadle workers add http://e:1 --kind vllm --capacity-tokens 10",
            "treadle provision --plan 4x1,1x4 --url http://a:1 -- vllm serve m --port {port}",
            "treadle provision --ask columns.json --json",
            "treadle events tail --follow --program p --after 5 -n 3",
            "treadle plugin bind lru --config-json {}",
            "treadle plugin check file --offline --json",
            "treadle tokens",
            "treadle tokens create ci --scope job --expires-in 30d --tenant acme --token tr_x",
            "treadle tokens create boss --scope admin --whole-daemon",
            "treadle tokens rotate 1f --json",
            "treadle tenants create acme --limit live_programs=5 --limit plugins=none",
            "treadle tenants set acme --limit unsigned_plugins=false",
            "treadle audit --action token.created -n 5 --before 7",
            "treadle serve --engine http://a:1,http://b:1 --engine http://c:1 --set server.listen=[::]:1",
            "treadle up --engines 3 --listen 127.0.0.1:0 --kv-tokens 5000 --time-scale 20",
            "treadle replay --store x --until 5 --from-start",
            "treadle migrate --dry-run --json --set store.path=x",
            "treadle doctor --json --url http://a:1",
            "treadle lab compare --trace t --policies least-load,x=a.wasm:c.json+b.wasm --json",
            "treadle lab compare --store s --from 3 --to 9 --sets f --profile p.json --seeds 5",
            "treadle lab run --policies recorded,lru-eviction@1 --job j --detach",
            "treadle lab cancel lab-1 --json",
            "treadle demo --simulate --json",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "treadle",
            "treadle programs --steps",
            "treadle programs p --steps --decisions",
            "treadle programs p --all",
            "treadle up --engines 0",
            "treadle status --url localhost:8300",
            "treadle plugin bind p --config-json []",
            "treadle workers add http://e:1 --kind tgi",
            "treadle events",
            "treadle provision",
            "treadle provision --plan 4",
            "treadle tokens create ci",
            "treadle tokens create ci --scope root",
            "treadle tokens create ci --scope job --expires-in 5x",
            "treadle tenants set acme --limit plugins",
            "treadle lab compare --policies a",
            "treadle lab compare --trace t --store s --policies a",
            "treadle lab run",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
