//! `treadle training`: training runs, and a check of one from outside.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_notice, print_table, print_text};
use treadle_training_check::{Assembled, Report, assembled, check, read_batches, read_events};

const JOBS: &[Column] = &[
    ("JOB", "/job"),
    ("NEXT BATCH", "/next_batch"),
    ("VERSION", "/version"),
    ("CHECKPOINT", "/checkpoint"),
    ("QUEUED", "/queued"),
    ("RUNNING", "/running"),
    ("READY", "/ready"),
    ("SERVED", "/account/served/members"),
    ("REWARD", "/account/served/reward_mean"),
    ("LAG", "/account/lag"),
];
const WAITS: &[Column] = &[
    ("WHO WAITS", "/who"),
    ("FOR", "/waits_for"),
    ("WHAT HAS TO HAPPEN", "/message"),
];
const ACCOUNT: &[Column] = &[
    ("DOMAIN", "/domain"),
    ("MEMBERS", "/what"),
    ("COUNT", "/members"),
    ("TOKENS", "/tokens"),
    ("TURNS", "/turns"),
    ("REWARD", "/reward_mean"),
];
const PROFILE: &[Column] = &[
    ("DOMAIN", "/domain"),
    ("CLASS", "/class"),
    ("MEMBERS", "/members"),
    ("TURNS", "/turns"),
    ("PREFILL TOKENS", "/prefill_tokens"),
    ("OUTPUT TOKENS", "/output_tokens"),
    ("SECONDS BY CLASS", "/seconds"),
];
const BREAKS: &[Column] = &[("BREAKS", "/kind"), ("STEPS", "/steps")];
const PATH: &str = "/api/v1/jobs";
const NONE: &str = "no training job is declared; docs/training.md shows how";
/// Events in one request.
const PAGE: u32 = 10_000;
/// Why a member's steps can't be had: they were removed, or are too many for one answer.
const NO_STEPS: &[&str] = &["job_unknown", "member_unknown", "answer_too_large"];

/// Arguments of `treadle training`.
#[derive(Args, Clone, Debug)]
pub(super) struct TrainingArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<TrainingCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum TrainingCommand {
    /// List training jobs.
    List,
    /// Show a training job: who waits for whom, and what became of its members.
    Show {
        /// The job.
        job: String,
    },
    /// Prove from the journal and from the batches as the trainer stored them that a run kept its
    /// promises.
    Check {
        /// The job.
        #[arg(long)]
        job: String,
        /// Folder with `batch-K.json` and `batch-K.safetensors`.
        #[arg(long)]
        batches: PathBuf,
    },
}

impl TrainingArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        match self.command.unwrap_or(TrainingCommand::List) {
            TrainingCommand::List => {
                let answer = client.get(PATH).await?;
                if json {
                    return print_json(&answer);
                }
                print_table(JOBS, rows(&answer["jobs"]), NONE)
            }
            TrainingCommand::Show { job } => {
                let answer = client.get(&format!("{PATH}/{}", escaped(&job))).await?;
                if json {
                    return print_json(&answer);
                }
                print_table(JOBS, std::slice::from_ref(&answer), NONE)?;
                print_text("\n")?;
                print_table(WAITS, rows(&answer["waits"]), "nothing waits")?;
                print_account(&answer["account"])?;
                print_profile(&answer["profile"])
            }
            TrainingCommand::Check { job, batches } => {
                let lines = lines(&client, &job).await?;
                let events = read_events(&*lines)?;
                let batches = read_batches(&batches, &job)?;
                let mut report = check(&events, &batches);
                let assembled = assembled(&events, &batches);
                prove(&client, &job, &assembled, &mut report).await?;
                if json {
                    print_json(&serde_json::to_value(&report).unwrap_or_default())?;
                } else {
                    print_text(&format!("{report}\n"))?;
                }
                for violation in &report.violations {
                    print_notice(&format!("violation: {violation}"));
                }
                match report.violations.len() {
                    0 => Ok(()),
                    count => Err(CliError::Failed(format!("{count} violations"))),
                }
            }
        }
    }
}

/// What became of the members of a job, and of those of each domain.
fn print_account(account: &Value) -> Result<(), CliError> {
    let mut lines = outcomes("all", account);
    for (domain, own) in account["domains"].as_object().into_iter().flatten() {
        lines.extend(outcomes(domain, own));
    }
    print_text("\n")?;
    print_table(ACCOUNT, &lines, "no member has begun")?;
    let breaks = account["breaks"].as_object().into_iter().flatten();
    let breaks = breaks.map(|(kind, steps)| json!({"kind": kind, "steps": steps}));
    let breaks: Vec<Value> = breaks.collect();
    if breaks.is_empty() {
        return Ok(());
    }
    print_text("\n")?;
    print_table(BREAKS, &breaks, "")
}

/// What members of each domain need, and the hardware that they prefer.
fn print_profile(profile: &Value) -> Result<(), CliError> {
    let row = |(domain, own): (&String, &Value)| {
        let times = own["seconds"].as_object().into_iter().flatten();
        let times = times.map(|(class, seconds)| format!("{class}: {seconds}"));
        let times: Vec<String> = times.collect();
        let mut row = own.clone();
        for mean in ["turns", "prefill_tokens", "output_tokens"] {
            let rounded = own[mean].as_f64().map(|mean| (mean * 10.0).round() / 10.0);
            row[mean] = json!(rounded);
        }
        row["domain"] = json!(domain);
        row["seconds"] = json!(times.join(", "));
        if let Some(class) = profile["proposed"][domain].as_str() {
            let acting = own["class"].as_str().unwrap_or("none");
            if acting != class {
                row["class"] = json!(format!("{acting}, proposed: {class}"));
            }
        }
        row
    };
    let domains = profile["domains"].as_object().into_iter().flatten();
    let domains: Vec<Value> = domains.map(row).collect();
    if domains.is_empty() {
        return Ok(());
    }
    print_text("\n")?;
    print_table(PROFILE, &domains, "")?;
    match profile["note"].as_str() {
        Some(note) => print_text(&format!("\n{note}\n")),
        None => Ok(()),
    }
}

fn outcomes(domain: &str, account: &Value) -> Vec<Value> {
    let line = |what: &str, tally: &Value| {
        let mut line = tally.clone();
        line["domain"] = domain.into();
        line["what"] = what.into();
        line
    };
    let mut lines = vec![
        line("begun", &json!({"members": account["begun"]})),
        line("finished", &account["finished"]),
        line("served", &account["served"]),
    ];
    let lost = account["lost"].as_object().into_iter().flatten();
    lines.extend(lost.map(|(end, tally)| line(&format!("lost: {end}"), tally)));
    lines
}

fn rows(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A job's events on record, one per line.
async fn lines(client: &Client, job: &str) -> Result<Vec<u8>, CliError> {
    let mut lines = Vec::new();
    let mut after = 0;
    loop {
        let job = escaped(job);
        let path = format!("/api/v1/events?job={job}&after={after}&limit={PAGE}");
        let page = client.get(&path).await?;
        for event in rows(&page["events"]) {
            lines.extend(event.to_string().into_bytes());
            lines.push(b'\n');
        }
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => return Ok(lines),
        }
    }
}

/// Proves samples that treadle assembled from the steps of their members, if these are still there.
async fn prove(
    client: &Client,
    job: &str,
    batches: &[Assembled<'_>],
    report: &mut Report,
) -> Result<(), CliError> {
    for batch in batches {
        let samples = batch.read()?;
        for program in samples.programs() {
            let (job, member) = (escaped(job), escaped(program));
            let number = batch.number();
            let path = format!("{PATH}/{job}/members/{member}/steps?batch={number}");
            match client.get(&path).await {
                Ok(steps) => samples.prove(program, steps.to_string().as_bytes(), report)?,
                Err(CliError::Refused { code, .. }) if NO_STEPS.contains(&&*code) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
