//! `treadle workers`: the engines behind a daemon.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use treadle_core::programs::WorkerRole;
use treadle_model::{EngineKind, TOKENS_MAX};

use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::memory::MemoryArgs;
use super::output::{Column, plain, print_json, print_notice, print_table, print_text};
use super::provision::ProvisionArgs;

const WORKERS: &[Column] = &[
    ("ID", "/id"),
    ("URL", "/url"),
    ("ENGINE", "/engine"),
    ("HEALTHY", "/is_healthy"),
    ("STATE", "/state"),
    ("CLASS", "/class"),
    ("ROLE", "/role"),
    ("PROGRAMS", "/programs"),
    ("STEPS", "/load"),
    ("USED TOKENS", "/used_tokens"),
    ("CAPACITY TOKENS", "/capacity_tokens"),
    ("HOST TOKENS", "/host_tokens"),
    ("PREFILL TOKENS/S", "/prefill_tokens_per_s"),
    ("TOKEN S", "/token_us"),
    ("STEP S", "/step_us"),
];
/// Pause between two polls of an engine that is drained.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of remaining programs that are named.
const NAMED_MAX: usize = 5;
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
    /// Remove an engine; its programs continue elsewhere.
    Remove {
        /// The engine's URL or ID.
        worker: String,
    },
    /// Assign no new programs to an engine; its programs continue there.
    Cordon {
        /// The engine's URL or ID.
        worker: String,
    },
    /// Move an engine's programs elsewhere, each when its running step has ended.
    Drain {
        /// The engine's URL or ID.
        worker: String,
        /// Wait until no program is left.
        #[arg(long)]
        wait: bool,
        /// Maximum wait, in seconds; after it the command fails, and the engine goes on draining.
        #[arg(long, requires = "wait", default_value_t = 3_600)]
        timeout_s: u64,
    },
    /// Assign programs to an engine again.
    Activate {
        /// The engine's URL or ID.
        worker: String,
    },
    /// Show how the engines' KV memory is used.
    Memory(MemoryArgs),
    /// Start engines according to a plan of parallelism, or show the plan.
    Provision(Box<ProvisionArgs>),
}

#[derive(Args, Clone, Debug)]
struct AddArgs {
    /// Base URL of the engine, such as http://10.0.0.1:8000.
    engine: String,
    /// The engine's kind; detected by default.
    #[arg(long, value_parser = PossibleValuesParser::new(kinds()))]
    kind: Option<String>,
    /// Size of the engine's KV cache in tokens; by default as the engine reports.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=TOKENS_MAX))]
    capacity_tokens: Option<u64>,
    /// The engine's class of hardware, such as h20, which training jobs name in `affinity`.
    #[arg(long)]
    class: Option<String>,
    /// The engine's part of each step: both, prefill (it computes prompts for others) or decode
    /// (long prompts are computed elsewhere first). SGLang reports it itself.
    #[arg(long, value_parser = PossibleValuesParser::new(WorkerRole::ALL.map(WorkerRole::as_str)))]
    role: Option<String>,
    /// The engine's speed until its own steps show it: a file of `treadle-bench calibrate`, or a
    /// preset's name. The engine is then not measured.
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
}

/// The document in a file, or a preset's name.
async fn profile(named: &str) -> Result<Value, CliError> {
    let path = Path::new(named);
    if !path.exists() {
        return Ok(json!(named));
    }
    let document = tokio::fs::read(path).await;
    let document = document.map_err(|cause| CliError::File {
        path: path.to_owned(),
        cause,
    })?;
    serde_json::from_slice(&document)
        .map_err(|error| CliError::Usage(format!("{named} is not a profile: {error}")))
}

fn kinds() -> Vec<&'static str> {
    EngineKind::ALL.iter().map(|kind| kind.as_str()).collect()
}

impl WorkersArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        let (answer, told) = match self.command.unwrap_or(WorkersCommand::List) {
            WorkersCommand::List => (client.get("/workers").await?, None),
            WorkersCommand::Add(add) => {
                let mut body = json!({
                    "url": add.engine, "kind": add.kind, "capacity_tokens": add.capacity_tokens,
                    "class": add.class, "role": add.role,
                });
                if let Some(named) = &add.profile {
                    body["profile"] = profile(named).await?;
                }
                let answer = client.command(Method::POST, "/workers", &body).await?;
                let told = added(&add.engine, &answer);
                (answer, Some(told))
            }
            WorkersCommand::Remove { worker } => {
                let path = format!("/workers/{}", escaped(&worker));
                let answer = client.command(Method::DELETE, &path, &json!({})).await?;
                (answer, Some(format!("removed {worker}")))
            }
            WorkersCommand::Cordon { worker } => {
                shown(set_state(&client, &worker, "cordoned").await?)
            }
            WorkersCommand::Drain {
                worker,
                wait,
                timeout_s,
            } => {
                let set = set_state(&client, &worker, "draining").await?;
                shown(if wait {
                    drained(&client, set, Duration::from_secs(timeout_s)).await?
                } else {
                    set
                })
            }
            WorkersCommand::Activate { worker } => {
                shown(set_state(&client, &worker, "active").await?)
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

/// Sets an engine's state and returns the engine's entry.
async fn set_state(client: &Client, worker: &str, state: &str) -> Result<Value, CliError> {
    let path = format!("/api/v1/workers/{}", escaped(worker));
    let body = json!({"state": state});
    client.command(Method::PATCH, &path, &body).await
}

/// Waits until a draining engine has no programs, and prints each change of the problem that holds
/// it up.
async fn drained(client: &Client, set: Value, most: Duration) -> Result<Value, CliError> {
    let began = Instant::now();
    let mut view = set;
    let mut told = Value::Null;
    while view["state"] == "draining" {
        if view["problem"] != told {
            told = view["problem"].clone();
            let text = told.as_str();
            print_notice(text.unwrap_or("another engine takes programs again"));
        }
        if began.elapsed() >= most {
            return Err(still_draining(client, &view, most).await);
        }
        tokio::time::sleep(LOOK_PAUSE.min(most.saturating_sub(began.elapsed()))).await;
        let answer = client.get("/workers").await?;
        let row = rows(&answer).iter().find(|row| row["id"] == view["id"]);
        view = row.cloned().unwrap_or_default();
    }
    if view["state"] == "drained" {
        return Ok(view);
    }
    let message = "the engine was taken back or removed before it was drained";
    Err(CliError::Failed(message.to_owned()))
}

/// The error for an engine that still has programs after the wait.
async fn still_draining(client: &Client, view: &Value, most: Duration) -> CliError {
    let of = |field: &str| plain(&view[field]);
    let url = view["url"].as_str().unwrap_or_default();
    let path = format!(
        "/api/v1/programs?worker={}&limit={NAMED_MAX}&sort=-lasted",
        escaped(url)
    );
    let answer = client.get(&path).await.unwrap_or_default();
    let programs = answer["programs"].as_array();
    let names = programs.into_iter().flatten();
    let names: Vec<_> = names.map(|program| plain(&program["program_id"])).collect();
    let among = if names.is_empty() {
        String::new()
    } else {
        format!(" (the oldest: {})", names.join(", "))
    };
    let problem = view["problem"].as_str();
    let problem = problem.map(|text| format!("; {text}")).unwrap_or_default();
    CliError::Failed(format!(
        "{} still has {} programs{among} and {} running steps after {} s, and goes on draining{problem}; wait again, or take it back with `treadle workers activate`",
        of("url"),
        of("programs"),
        of("load"),
        most.as_secs(),
    ))
}

/// An engine after a change of state, as JSON and as text for people.
fn shown(view: Value) -> (Value, Option<String>) {
    let of = |field: &str| plain(&view[field]);
    let left = if view["state"] == "draining" {
        let (programs, steps) = (of("programs"), of("load"));
        format!(", with {programs} programs and {steps} steps left")
    } else {
        String::new()
    };
    let problem = view["problem"]
        .as_str()
        .map(|problem| format!("; {problem}"));
    let problem = problem.unwrap_or_default();
    let told = format!("{} is {}{left}{problem}", of("url"), of("state"));
    (view, Some(told))
}

/// The result of registering an engine, which is monitored even if it is down.
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
