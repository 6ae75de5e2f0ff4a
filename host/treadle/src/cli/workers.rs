//! `treadle workers`: the engines behind a daemon.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use treadle_model::{EngineKind, TOKENS_MAX};

use super::client::{Remote, escaped};
use super::error::CliError;
use super::memory::MemoryArgs;
use super::output::{Column, plain, print_json, print_table, print_text};
use super::provision::ProvisionArgs;

const WORKERS: &[Column] = &[
    ("ID", "/id"),
    ("URL", "/url"),
    ("ENGINE", "/engine"),
    ("HEALTHY", "/is_healthy"),
    ("PROGRAMS", "/programs"),
    ("STEPS", "/load"),
    ("USED TOKENS", "/used_tokens"),
    ("CAPACITY TOKENS", "/capacity_tokens"),
    ("HOST TOKENS", "/host_tokens"),
    ("PREFILL TOKENS/S", "/prefill_tokens_per_s"),
    ("TOKEN US", "/token_us"),
    ("STEP US", "/step_us"),
];
const NONE: &str = "no engine is registered; add one with `treadle workers add URL`";

/// Arguments of `treadle workers`.
#[derive(Args, Clone, Debug)]
pub(super) struct WorkersArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<WorkersCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum WorkersCommand {
    /// List the engines.
    List,
    /// Register an engine.
    Add(AddArgs),
    /// Take an engine out; its programs go on elsewhere.
    Remove {
        /// Its URL or its id.
        worker: String,
    },
    /// Show what the engines' KV memory is used for.
    Memory(MemoryArgs),
    /// Start engines after a plan of parallelism, or show the plan.
    Provision(Box<ProvisionArgs>),
}

#[derive(Args, Clone, Debug)]
struct AddArgs {
    /// Base URL of the engine, such as http://10.0.0.1:8000.
    engine: String,
    /// What it is; found out by asking it unless given.
    #[arg(long, value_parser = PossibleValuesParser::new(kinds()))]
    kind: Option<String>,
    /// Tokens that fit in its cache; asked of the engine unless given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=TOKENS_MAX))]
    capacity_tokens: Option<u64>,
}

fn kinds() -> Vec<&'static str> {
    EngineKind::ALL.iter().map(|kind| kind.as_str()).collect()
}

impl WorkersArgs {
    /// Asks the daemon and prints its answer.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        let (answer, told) = match self.command.unwrap_or(WorkersCommand::List) {
            WorkersCommand::List => (client.get("/workers").await?, None),
            WorkersCommand::Add(add) => {
                let body = json!({
                    "url": add.engine, "kind": add.kind, "capacity_tokens": add.capacity_tokens,
                });
                let answer = client.command(Method::POST, "/workers", &body).await?;
                let told = added(&add.engine, &answer);
                (answer, Some(told))
            }
            WorkersCommand::Remove { worker } => {
                let path = format!("/workers/{}", escaped(&worker));
                let answer = client.command(Method::DELETE, &path, &json!({})).await?;
                (answer, Some(format!("removed {worker}")))
            }
            WorkersCommand::Memory(args) => return args.run(&self.remote).await,
            WorkersCommand::Provision(args) => return Box::pin(args.run(&self.remote)).await,
        };
        if json {
            return print_json(&answer);
        }
        match told {
            Some(told) => print_text(&told),
            None => print_table(WORKERS, rows(&answer), NONE),
        }
    }
}

fn rows(answer: &Value) -> &[Value] {
    answer["workers"].as_array().map_or(&[], Vec::as_slice)
}

/// What registering an engine came to: it is watched even if it is down.
fn added(url: &str, answer: &Value) -> String {
    let id = plain(&answer["worker_id"]);
    let registered = if answer["added"] == true {
        "registered"
    } else {
        "was registered already"
    };
    let entry = rows(answer).iter().find(|row| row["id"] == *id);
    let is_healthy = entry.is_some_and(|row| row["is_healthy"] == true);
    let health = if is_healthy {
        "it answers"
    } else {
        "it does not answer yet; programs go to it once it does"
    };
    format!("{url} {registered} as worker {id}, {health}")
}
