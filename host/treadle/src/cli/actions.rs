//! `treadle actions`: tool calls and rewards that a daemon runs.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_table, print_text};

const ACTIONS: &[Column] = &[
    ("ACTION", "/action"),
    ("KIND", "/kind"),
    ("JOB", "/job"),
    ("PROGRAM", "/program_id"),
    ("STATUS", "/status"),
    ("OUTCOME", "/outcome"),
    ("COST", "/cost"),
    ("QUEUE S", "/queue_us"),
    ("OVERHEAD S", "/overhead_us"),
    ("RUN S", "/run_us"),
];
const RESOURCES: &[Column] = &[
    ("RESOURCE", "/name"),
    ("KIND", "/kind"),
    ("TOTAL", "/total"),
    ("USED", "/used"),
    ("FREE", "/free"),
];
/// Longest wait of one request; the next one is sent after it.
const WAIT_S: u64 = 60;
/// Exit code when the command timed out, as with `timeout`.
const TIMED_OUT: i64 = 124;
/// Exit code when the command did not run, or its result is unknown.
const NOT_RUN: u8 = 125;

/// Arguments of `treadle actions`.
#[derive(Args, Clone, Debug)]
pub(super) struct ActionsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<ActionsCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum ActionsCommand {
    /// List actions, newest first.
    List(ListArgs),
    /// Show an action with its output.
    Show {
        /// The action's number.
        action: u64,
    },
    /// Run a command on the daemon's machine, wait for its end, print its output, and end with its exit
    /// code: 128 and a signal's number, 124 after a timeout, 125 if it did not run.
    Run(RunArgs),
    /// Cancel an action.
    Cancel {
        /// The action's number.
        action: u64,
    },
    /// Show the resources that actions use.
    Resources,
}

#[derive(Args, Clone, Debug, Default)]
struct ListArgs {
    /// Only actions of this job.
    #[arg(long)]
    job: Option<String>,
    /// Only actions of this program.
    #[arg(long)]
    program: Option<String>,
    /// Only actions with this status: waiting, starting, running, stopping or ended.
    #[arg(long)]
    status: Option<String>,
    /// Only actions submitted before this one.
    #[arg(long, value_name = "ACTION")]
    before: Option<u64>,
    /// Maximum number of actions.
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(Args, Clone, Debug)]
struct RunArgs {
    /// The program that the action belongs to.
    #[arg(long)]
    program: Option<String>,
    /// The tool's name; by default the command's.
    #[arg(long)]
    kind: Option<String>,
    /// CPU cores for the action.
    #[arg(long, default_value_t = 1)]
    cores: u64,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ActionsArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        let command = self.command.unwrap_or_else(|| {
            ActionsCommand::List(ListArgs {
                limit: 50,
                ..ListArgs::default()
            })
        });
        match command {
            ActionsCommand::List(list) => list.run(&client, json).await,
            ActionsCommand::Show { action } => show(&client.get(&path_of(action)).await?, json),
            ActionsCommand::Run(run) => run.run(&client, json).await,
            ActionsCommand::Cancel { action } => {
                let path = path_of(action);
                let (method, nothing) = (Method::DELETE, Value::Null);
                show(&client.command(method, &path, &nothing).await?, json)
            }
            ActionsCommand::Resources => resources(&client, json).await,
        }
    }
}

impl ListArgs {
    async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let before = self.before.map(|action| action.to_string());
        let filters = [
            ("job", self.job),
            ("program_id", self.program),
            ("status", self.status),
            ("before", before),
        ];
        let given = filters
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)));
        let filters: String = given
            .flat_map(|(name, text)| ["&", name, "=", &escaped(&text)].map(str::to_owned))
            .collect();
        let path = format!("/api/v1/actions?limit={}{filters}", self.limit);
        let mut answer = client.get(&path).await?;
        if json {
            return print_json(&answer);
        }
        let mut rows = answer["actions"].take();
        let rows = rows.as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
        rows.iter_mut().for_each(told);
        print_table(ACTIONS, rows, "no action was submitted")?;
        if let Some(next) = answer["next"].as_u64() {
            print_text(&format!("older ones: --before {next}"))?;
        }
        Ok(())
    }
}

impl RunArgs {
    async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let kind = self.kind.unwrap_or_else(|| kind_of(&self.command));
        let body = json!({
            "kind": kind, "program_id": self.program, "cost": {"cpu": self.cores},
            "run": {"process": {"command": self.command}},
        });
        run_to_end(client, &body, json).await
    }
}

/// The tool's name for a command: its program without the path.
pub(super) fn kind_of(command: &[String]) -> String {
    let program = command.first().map_or("", String::as_str);
    let name = program.rsplit('/').next().unwrap_or(program);
    name.to_owned()
}

/// Submits an action, waits for its end and prints the result; exits with the command's code.
pub(super) async fn run_to_end(client: &Client, body: &Value, json: bool) -> Result<(), CliError> {
    let answer = client
        .command(Method::POST, "/api/v1/actions", body)
        .await?;
    let action = answer["action"].as_u64().unwrap_or_default();
    let path = format!("{}?wait_s={WAIT_S}", path_of(action));
    loop {
        let view = client.get(&path).await?;
        if view["status"] == "ended" {
            show(&view, json)?;
            return as_it_ended(&view["outcome"]);
        }
    }
}

/// The exit code to end with: the command's own, 128 + signal as shells do, 124 or 125.
fn as_it_ended(outcome: &Value) -> Result<(), CliError> {
    let number = |field: &str| outcome[field].as_i64();
    let code = match outcome["outcome"].as_str() {
        Some("exited") => number("code"),
        Some("killed") => number("signal").map(|signal| 128 + signal),
        Some("timed_out") => Some(TIMED_OUT),
        _ => None,
    };
    match code.map(u8::try_from) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(CliError::Ran(code)),
        _ => Err(CliError::Ran(NOT_RUN)),
    }
}

fn path_of(action: u64) -> String {
    format!("/api/v1/actions/{action}")
}

fn show(view: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(view);
    }
    let mut row = view.clone();
    told(&mut row);
    print_table(ACTIONS, &[row], "")?;
    match view["output"]["text"].as_str() {
        Some(text) if !text.is_empty() => print_text(&format!("\n{text}")),
        _ => Ok(()),
    }
}

/// Adds the outcome in words and the durations of the phases to a row.
fn told(row: &mut Value) {
    let at = |field: &str| row[field].as_u64();
    let submitted = at("submitted_at_us");
    let (granted, began) = (at("granted_at_us"), at("began_at_us"));
    let ended = at("ended_at_us");
    let between = |from: Option<u64>, to: Option<u64>| {
        let took = from.zip(to).map(|(from, to)| to.saturating_sub(from));
        json!(took)
    };
    let queue = between(submitted, granted.or(ended));
    let overhead = between(granted, began);
    let ran = between(began, ended);
    let outcome = &row["outcome"];
    let detail = ["code", "signal", "cause"].map(|field| &outcome[field]);
    let detail = detail.into_iter().find(|detail| !detail.is_null());
    let words = outcome["outcome"].as_str().map(|word| match detail {
        Some(Value::String(cause)) => format!("{word}: {cause}"),
        Some(number) => format!("{word} {number}"),
        None => word.to_owned(),
    });
    row["outcome"] = json!(words);
    row["queue_us"] = queue;
    row["overhead_us"] = overhead;
    row["run_us"] = ran;
}

async fn resources(client: &Client, json: bool) -> Result<(), CliError> {
    let answer = client.get("/api/v1/resources").await?;
    if json {
        return print_json(&answer);
    }
    let rows = answer["resources"].as_array();
    let rows = rows.map_or(&[][..], Vec::as_slice);
    print_table(
        RESOURCES,
        rows,
        "this daemon runs no actions; set actions.enabled = true",
    )?;
    let (waiting, started) = (&answer["waiting"], &answer["started"]);
    print_text(&format!("{waiting} actions wait, {started} are started"))
}
