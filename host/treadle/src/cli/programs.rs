//! `treadle programs`: agent programs, their steps and decisions.

mod family;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::output::{Column, fields, plain, print_json, print_table, print_text};

const LIVE: &[Column] = &[
    ("PROGRAM", "/program_id"),
    ("JOB", "/job"),
    ("STATUS", "/state"),
    ("PHASE", "/status"),
    ("STEPS", "/step_count"),
    ("CONTEXT TOKENS", "/context_len"),
    ("PAUSES", "/pauses"),
    ("CACHE", "/cache/at"),
    ("WORKER", "/backend"),
];
const STORED: &[Column] = &[
    ("PROGRAM", "/program_id"),
    ("JOB", "/job"),
    ("STATUS", "/status"),
    ("PHASE", "/phase"),
    ("STEPS", "/steps"),
    ("CONTEXT TOKENS", "/context_tokens"),
    ("REWARD", "/reward"),
    ("WORKER", "/worker"),
    ("UPDATED (UTC)", "/updated_at_us"),
];
const ONE: &[Column] = &[
    ("program", "/program_id"),
    ("job", "/job"),
    ("started by", "/parent"),
    ("status", "/status"),
    ("phase", "/phase"),
    ("worker", "/worker"),
    ("steps", "/steps"),
    ("context tokens", "/context_tokens"),
    ("tokens in all", "/tokens_total"),
    ("created (UTC)", "/created_at_us"),
    ("updated (UTC)", "/updated_at_us"),
    ("ended", "/ended"),
    ("reward", "/reward"),
];
const STEPS: &[Column] = &[
    ("STEP", "/step"),
    ("OUTCOME", "/outcome"),
    ("WORKER", "/worker"),
    ("ARRIVED (UTC)", "/arrived_at_us"),
    ("WAITED S", "/waited_us"),
    ("PROMPT", "/prompt_tokens"),
    ("CACHED", "/cached_tokens"),
    ("OUTPUT", "/output_tokens"),
    ("CAUSE", "/cause"),
];
const DECISIONS: &[Column] = &[
    ("EVENT", "/seq"),
    ("TIME (UTC)", "/at_us"),
    ("DECISION", "/kind"),
    ("BECAUSE", "/why/because"),
    ("WORKER", "/worker"),
    ("NEEDS", "/why/need_tokens"),
    ("USED", "/why/used_tokens"),
    ("CAPACITY", "/why/capacity_tokens"),
    ("SCORE", "/why/score"),
    ("POLICY", "/policy"),
];

/// Arguments of `treadle programs`.
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Args, Clone, Debug)]
pub(super) struct ProgramsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<ProgramsCommand>,
    /// The program to show; without it, all live ones.
    key: Option<String>,
    /// Show the program's steps.
    #[arg(long, requires = "key")]
    steps: bool,
    /// Show why the program was placed, paused and resumed; with --json, the alternatives too.
    #[arg(long, requires = "key", conflicts_with = "steps")]
    decisions: bool,
    /// Show the program's tree of agents: how long each was in steps, queued, and blocked by its
    /// sub-agents, and a timeline of steps (#) and pauses (-).
    #[arg(long, requires = "key", conflicts_with_all = ["steps", "decisions"])]
    family: bool,
    /// Include ended programs, newest first.
    #[arg(long, conflicts_with = "key")]
    all: bool,
    /// Maximum number of rows.
    #[arg(short = 'n', long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(Subcommand, Clone, Debug)]
enum ProgramsCommand {
    /// End a program, so that its memory is freed.
    Release {
        /// The program.
        key: String,
        /// The program's reward.
        #[arg(long, allow_negative_numbers = true)]
        reward: Option<f64>,
    },
    /// Report a program's reward, before or after its end.
    Reward {
        /// The program.
        key: String,
        /// Any number; it replaces the previous reward.
        #[arg(allow_negative_numbers = true)]
        reward: f64,
    },
}

impl ProgramsArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        match (self.command, self.key) {
            (Some(ProgramsCommand::Release { key, reward }), None) => {
                release(&client, &key, reward, json).await
            }
            (Some(ProgramsCommand::Reward { key, reward: value }), None) => {
                reward(&client, &key, value, json).await
            }
            (Some(_), Some(key)) => Err(CliError::Usage(format!(
                "`{key}` precedes the command; write `treadle programs release KEY`"
            ))),
            (None, None) if self.all => {
                let path = format!("/api/v1/programs?limit={}", self.limit);
                let listing = Listing("programs", STORED, "no programs are recorded");
                listing.show(&client, &path, json).await
            }
            (None, None) => live(&client, self.limit, json).await,
            (None, Some(key)) => {
                let path = format!("/api/v1/programs/{}", escaped(&key));
                // For an unknown program both lists are empty.
                let program = client.get(&path).await?;
                let limit = self.limit;
                if self.steps {
                    let path = format!("{path}/steps?limit={limit}");
                    let listing = Listing("steps", STEPS, "the program has no steps yet");
                    listing.show(&client, &path, json).await
                } else if self.decisions {
                    let path = format!("{path}/decisions?limit={limit}");
                    let empty = "no decisions about the program are recorded";
                    let listing = Listing("decisions", DECISIONS, empty);
                    listing.show(&client, &path, json).await
                } else if self.family {
                    family::show(&client, program, limit, json).await
                } else if json {
                    print_json(&program)
                } else {
                    print_text(&fields(ONE, &program))
                }
            }
        }
    }
}

/// A list in a response: its field, its columns, and the message if it is empty.
struct Listing(&'static str, &'static [Column], &'static str);

impl Listing {
    async fn show(&self, client: &Client, path: &str, json: bool) -> Result<(), CliError> {
        let answer = client.get(path).await?;
        if json {
            return print_json(&answer);
        }
        let rows = answer[self.0].as_array().cloned().unwrap_or_default();
        print_table(self.1, &rows, self.2)
    }
}

async fn live(client: &Client, limit: u32, json: bool) -> Result<(), CliError> {
    let answer = client.get("/programs").await?;
    if json {
        return print_json(&answer);
    }
    let Value::Object(programs) = answer else {
        return print_table(LIVE, &[], "no program is live");
    };
    let (total, limit) = (programs.len(), limit as usize);
    let rows: Vec<Value> = programs
        .into_iter()
        .take(limit)
        .filter_map(|(key, program)| {
            let Value::Object(mut program) = program else {
                return None;
            };
            program.insert("program_id".to_owned(), Value::String(key));
            Some(Value::Object(program))
        })
        .collect();
    print_table(LIVE, &rows, "no program is live")?;
    if total > limit {
        print_text(&format!("{} more; --limit shows more", total - limit))?;
    }
    Ok(())
}

async fn reward(client: &Client, key: &str, reward: f64, json: bool) -> Result<(), CliError> {
    let path = format!("/api/v1/programs/{}/reward", escaped(key));
    let body = json!({"reward": reward});
    let answer = client.command(Method::PUT, &path, &body).await?;
    if json {
        return print_json(&answer);
    }
    print_text(&format!(
        "{key} is rewarded with {}",
        plain(&answer["reward"])
    ))
}

async fn release(
    client: &Client,
    key: &str,
    reward: Option<f64>,
    json: bool,
) -> Result<(), CliError> {
    let body = json!({"program_id": key, "reward": reward});
    let answer = client
        .command(Method::POST, "/programs/release", &body)
        .await?;
    if answer["released"] != Value::Bool(true) {
        return Err(CliError::Failed(format!(
            "no program `{key}` is live; `treadle programs` lists those that are"
        )));
    }
    if json {
        print_json(&answer)
    } else {
        print_text(&format!("released {key}"))
    }
}
