//! `treadle what-if`: replays recorded work under other policies.

use super::client::{Asking, Client, Server, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_notice, print_table, print_text};
use super::progress;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use treadle_whatif::arguments::{SetArgs, SettingArgs, WindowArgs};
use treadle_whatif::compare::CompareArgs;
use treadle_whatif::sets::SetSpec;
use treadle_whatif::text::text;

/// First pause between two polls of a run's progress.
const POLL_PAUSE: Duration = Duration::from_millis(300);
/// Longest such pause: tenants may have a request rate limit.
const POLL_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Consecutive temporary refusals after which the command stops waiting for the run.
const REFUSALS_MAX: u32 = 60;
const RUNS: &[Column] = &[
    ("RUN", "/run"),
    ("STATUS", "/status"),
    ("CREATED", "/created_at_us"),
    ("PROGRESS", "/progress/share"),
    ("SETS", "/sets"),
];
const NONE: &str = "there are no what-if runs; start one with `treadle what-if run --policies a,b`";

/// Arguments of `treadle what-if`.
#[derive(Args, Clone, Debug)]
pub(super) struct WhatIfArgs {
    #[command(subcommand)]
    command: WhatIfCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum WhatIfCommand {
    /// Compare policies on a trace, or on the journal of a store file, without a daemon.
    Compare(Box<CompareArgs>),
    /// Let a daemon replay a window of its journal under other policies.
    Run(Box<Asking<RunArgs>>),
    /// List the runs that the daemon stores.
    List(Server),
    /// Show a run: its progress, or its report.
    Show(Asking<NameArgs>),
    /// Cancel a run.
    Cancel(Asking<NameArgs>),
}

#[derive(Args, Clone, Debug)]
struct NameArgs {
    /// The run's ID.
    run: String,
}

#[derive(Args, Clone, Debug)]
struct RunArgs {
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    settings: SettingArgs,
    /// Don't wait for the end.
    #[arg(long)]
    detach: bool,
}

impl WhatIfArgs {
    /// Runs the command.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let json = self.json;
        match &self.command {
            WhatIfCommand::Compare(args) => compare(args, json).await,
            WhatIfCommand::Run(run) => start(&run.server.client(), &run.args, json).await,
            WhatIfCommand::List(server) => list(&server.client(), json).await,
            WhatIfCommand::Show(show) => {
                let path = path_of(&show.args.run);
                self::show(&show.server.client().get(&path).await?, json)
            }
            WhatIfCommand::Cancel(cancel) => {
                let (client, path) = (cancel.server.client(), path_of(&cancel.args.run));
                let answer = client.command(Method::DELETE, &path, &Value::Null).await?;
                show(&answer, json)
            }
        }
    }
}

async fn list(client: &Client, json: bool) -> Result<(), CliError> {
    let mut answer = client.get("/api/v1/what-if/runs").await?;
    let Value::Array(mut runs) = answer["runs"].take() else {
        return print_text(NONE);
    };
    if json {
        return print_json(&json!(runs));
    }
    for run in &mut runs {
        let names = run["sets"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        run["sets"] = names.join(", ").into();
        let share = run["progress"]["share"].as_f64().unwrap_or(0.0);
        run["progress"]["share"] = format!("{:.0} %", share * 100.0).into();
    }
    print_table(RUNS, &runs, NONE)
}

fn path_of(run: &str) -> String {
    format!("/api/v1/what-if/runs/{}", escaped(run))
}

async fn compare(args: &CompareArgs, json: bool) -> Result<(), CliError> {
    let bar = progress::bar(0, "replaying");
    let report_progress = |done, steps| {
        bar.set_length(steps);
        bar.set_position(done);
    };
    let findings = args.findings(&report_progress).await;
    bar.finish_and_clear();
    let report = serde_json::to_value(findings?)
        .map_err(|error| CliError::Failed(format!("the report can't be written: {error}")))?;
    if json {
        print_json(&report)
    } else {
        print_text(&text(&report))
    }
}

async fn start(client: &Client, args: &RunArgs, json: bool) -> Result<(), CliError> {
    let sets: Vec<Value> = args
        .sets
        .specs()?
        .iter()
        .map(|set| {
            if *set == SetSpec::named(&set.name) {
                // Some names of sets are shorthands that no object can express.
                return json!(set.name);
            }
            json!({
                "name": set.name, "mode": set.mode, "settings": set.settings,
                "policies": set.policies.iter().map(|policy| {
                    json!({"policy": policy.policy, "config": policy.config})
                }).collect::<Vec<_>>(),
            })
        })
        .collect();
    let settings = args.settings.settings()?;
    let body = json!({
        "window": args.window.spec(),
        "sets": sets,
        "profile": args.settings.profile()?,
        "seeds": settings.seeds,
        "jitter": settings.jitter,
        "differences": settings.differences,
        "slot_lag_s": settings.slot_lag_us as f64 / 1e6,
        "kv_tokens": settings.kv_tokens,
    });
    let run = client
        .command(Method::POST, "/api/v1/what-if/runs", &body)
        .await?;
    let name = run["run"].as_str().unwrap_or_default().to_owned();
    if args.detach {
        return if json {
            print_json(&run)
        } else {
            print_text(&name)
        };
    }
    // A user who stops waiting here must know that the run continues.
    print_notice(&format!(
        "{name} is running; ending this command leaves it running: `treadle what-if show {name}` shows it, `treadle what-if cancel {name}` ends it"
    ));
    show(&until_ended(client, &name, run).await?, json)
}

/// Waits for a run's end. Retries if the daemon's rate limit refuses a poll.
async fn until_ended(client: &Client, name: &str, run: Value) -> Result<Value, CliError> {
    let bar = progress::bar(0, "replaying");
    let (mut run, mut pause, mut refusals) = (run, POLL_PAUSE, 0);
    while matches!(run["status"].as_str(), Some("queued" | "running")) {
        tokio::time::sleep(pause).await;
        pause = POLL_PAUSE_MAX.min(pause * 5 / 4);
        match client.get(&path_of(name)).await {
            Ok(now) => (run, refusals) = (now, 0),
            Err(error) if refusals < REFUSALS_MAX && is_for_now(&error) => {
                (pause, refusals) = (POLL_PAUSE_MAX, refusals + 1);
            }
            Err(error) => return Err(error),
        }
        bar.set_length(run["progress"]["steps"].as_u64().unwrap_or(0));
        bar.set_position(run["progress"]["steps_done"].as_u64().unwrap_or(0));
    }
    bar.finish_and_clear();
    Ok(run)
}

/// Whether a refusal is temporary.
fn is_for_now(error: &CliError) -> bool {
    let CliError::Refused { code, .. } = error else {
        return false;
    };
    matches!(code.as_str(), "rate_limited" | "overloaded")
}

fn show(run: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(run);
    }
    if let Some(message) = run["error"]["message"].as_str() {
        let code = run["error"]["code"].as_str().unwrap_or_default().to_owned();
        let message = message.to_owned();
        return Err(CliError::Refused { code, message });
    }
    if run["report"].is_object() {
        return print_text(&text(&run["report"]));
    }
    let share = run["progress"]["share"].as_f64().unwrap_or(0.0) * 100.0;
    let status = run["status"].as_str().unwrap_or("?");
    let name = run["run"].as_str().unwrap_or("?");
    print_text(&format!(
        "{name} is {status}, {share:.0} % of its steps replayed"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_waited_for_where_fewer_questions_are_wanted() {
        let refused = |code: &str| CliError::Refused {
            code: code.to_owned(),
            message: String::new(),
        };
        assert!(is_for_now(&refused("rate_limited")));
        assert!(!is_for_now(&refused("whatif_run_unknown")));
        assert!(!is_for_now(&CliError::OutputClosed));
    }
}
