//! `treadle workers provision`: engines according to a plan of parallelism (`Heddle` §6): prints
//! it, or starts, monitors and registers them.

mod fleet;
mod plan;
mod replan;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use http::Method;
use serde_json::{Value, json};
use treadle_model::EngineKind;

use super::client::{Client, Remote};
use super::error::CliError;
use super::output::{Column, print_json, print_table};
use super::serve::Signals;
use fleet::{Fleet, Template};
use plan::Plan;
use replan::Replanner;

const DEGREES: &[Column] = &[("DEGREE", "/degree"), ("WORKERS", "/workers")];

/// Arguments of `treadle workers provision`.
#[derive(Args, Clone, Debug)]
pub(super) struct ProvisionArgs {
    /// The plan, as degree x workers: 4x1,1x4 is one worker on four GPUs and four on one GPU each.
    #[arg(long, value_name = "PLAN", required_unless_present_any = ["ask", "job"])]
    plan: Option<Plan>,
    /// A JSON file with columns of `parallelism` (gpus, degree, token_us, capacity_tokens,
    /// expected_tokens) for the allocation policy. Missing columns come from running engines and
    /// the job's last rollout.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    ask: Option<PathBuf>,
    /// Job whose allocation policy makes the plan, from its last rollout.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Number of GPUs to plan for; by default those of the running engines.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    gpus: Option<u32>,
    /// Make a new plan after each rollout of the job, and replace the engines that are not in it.
    /// The first plan is the given one, or else the policy's.
    #[arg(long, requires_all = ["job", "command"], conflicts_with = "ask")]
    replan: bool,
    /// Port of the first engine; an engine whose first GPU is N has this port + N.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    first_port: u16,
    /// Host under which the daemon reaches the engines.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Path that returns 200 once an engine is ready.
    #[arg(long, default_value = "/health")]
    health: String,
    /// Maximum time until an engine is ready, in seconds.
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    ready_s_max: u64,
    /// Maximum restarts of an engine that exits on its own.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    restarts_max: u32,
    /// Grace period of an engine to stop, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    grace_s: u64,
    /// Kind of the engines; detected by default.
    #[arg(long, value_parser = PossibleValuesParser::new(EngineKind::ALL.iter().map(|kind| kind.as_str())))]
    kind: Option<String>,
    /// Command that starts an engine, after `--`; {port}, {degree}, {index} and {gpus}
    /// (comma-separated numbers) are replaced. Without it the plan is printed and nothing is
    /// started.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ProvisionArgs {
    /// Prints the plan, or carries it out until a signal stops it.
    pub(super) async fn run(self, remote: &Remote) -> Result<(), CliError> {
        let client = remote.client();
        let plan = self.made(&client).await?;
        if self.command.is_empty() {
            return advise(&plan, remote.json);
        }
        let template = Template {
            command: self.command,
            first_port: self.first_port,
            host: self.host,
            health: self.health,
            ready: Duration::from_secs(self.ready_s_max),
            restarts_max: self.restarts_max,
            grace: Duration::from_secs(self.grace_s),
            kind: self.kind,
            json: remote.json,
        };
        let mut signals = Signals::listen()?;
        let client = Arc::new(client);
        let replanner = self.job.filter(|_| self.replan).map(|job| Replanner {
            client: client.clone(),
            gpus: self.gpus.map_or(plan.gpus(), u64::from),
            job,
        });
        let fleet = Fleet::start(client, Arc::new(template), &plan)?;
        fleet.run(signals.next(), replanner).await
    }

    async fn made(&self, client: &Client) -> Result<Plan, CliError> {
        if let Some(plan) = &self.plan {
            return Ok(plan.clone());
        }
        let mut columns = match &self.ask {
            Some(path) => read_columns(path).await?,
            None => json!({}),
        };
        if let Some(gpus) = self.gpus {
            columns["gpus"] = json!(gpus);
        }
        let answer = question(client, self.job.as_deref(), &columns).await?;
        Plan::of_answer(&columns, &answer)
    }
}

async fn read_columns(path: &Path) -> Result<Value, CliError> {
    let file = tokio::fs::read(path).await;
    let file = file.map_err(|cause| CliError::File {
        path: path.to_owned(),
        cause,
    })?;
    let usage = |what: String| CliError::Usage(format!("{}: {what}", path.display()));
    let columns: Value = serde_json::from_slice(&file).map_err(|error| usage(error.to_string()))?;
    if columns.is_object() {
        return Ok(columns);
    }
    Err(usage("it has no JSON object of columns".into()))
}

/// Asks the job's allocation policy for a plan.
async fn question(client: &Client, job: Option<&str>, columns: &Value) -> Result<Value, CliError> {
    let mut question = json!({
        "world": "allocation", "function": "parallelism", "columns": columns,
    });
    if let Some(job) = job {
        question["job"] = json!(job);
    }
    client.command(Method::POST, "/api/v1/ask", &question).await
}

fn advise(plan: &Plan, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(&json!({"plan": plan.rows(), "gpus": plan.gpus()}));
    }
    print_table(DEGREES, &plan.rows(), "the plan has no workers")
}
