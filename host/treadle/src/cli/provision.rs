//! `treadle workers provision`: engines after a plan of parallelism (`Heddle` §6), as
//! advice, or started, watched and registered.

mod fleet;
mod plan;

use std::path::PathBuf;
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

const DEGREES: &[Column] = &[("DEGREE", "/degree"), ("WORKERS", "/workers")];

/// Arguments of `treadle workers provision`.
#[derive(Args, Clone, Debug)]
pub(super) struct ProvisionArgs {
    /// The plan, as degree x workers: 4x1,1x4 is one worker on four GPUs and four on one each.
    #[arg(long, value_name = "PLAN", required_unless_present = "ask")]
    plan: Option<Plan>,
    /// A file with the columns of `parallelism` in JSON (gpus, degree, token_us, capacity_tokens,
    /// expected_tokens), for the allocation policy to make the plan.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    ask: Option<PathBuf>,
    /// Job whose allocation policy is asked.
    #[arg(long, value_name = "NAME", requires = "ask")]
    job: Option<String>,
    /// Port of the first engine; each further one has the next.
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    first_port: u16,
    /// Host under which the daemon reaches the engines.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Path that answers with 200 once an engine is ready.
    #[arg(long, default_value = "/health")]
    health: String,
    /// How long an engine may take to get ready.
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    ready_s_max: u64,
    /// How often an engine that exits on its own is restarted.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    restarts_max: u32,
    /// How long an engine has to stop on request.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    grace_s: u64,
    /// What the engines are; found out by asking them unless given.
    #[arg(long, value_parser = PossibleValuesParser::new(EngineKind::ALL.iter().map(|kind| kind.as_str())))]
    kind: Option<String>,
    /// The command that starts an engine, after `--`: {port}, {degree}, {index} and {gpus} (numbers
    /// with commas) are filled in. Without it the plan is printed and nothing is started.
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
        let engines = template.engines(&plan)?;
        let mut signals = Signals::listen()?;
        let fleet = Fleet::start(&Arc::new(client), &Arc::new(template), engines);
        fleet.run(signals.next()).await
    }

    async fn made(&self, client: &Client) -> Result<Plan, CliError> {
        if let Some(plan) = &self.plan {
            return Ok(plan.clone());
        }
        let path = self.ask.clone().unwrap_or_default();
        let file = tokio::fs::read(&path).await;
        let file = file.map_err(|cause| CliError::File {
            path: path.clone(),
            cause,
        })?;
        let columns: Value = serde_json::from_slice(&file)
            .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
        let mut question = json!({
            "world": "allocation", "function": "parallelism", "columns": columns,
        });
        if let Some(job) = &self.job {
            question["job"] = json!(job);
        }
        let answer = client
            .command(Method::POST, "/api/v1/ask", &question)
            .await?;
        Plan::of_answer(&columns, &answer)
    }
}

fn advise(plan: &Plan, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(&json!({"plan": plan.rows(), "gpus": plan.gpus()}));
    }
    print_table(DEGREES, &plan.rows(), "the plan has no workers")
}
