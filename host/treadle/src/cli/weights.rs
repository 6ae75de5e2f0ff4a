//! `treadle weights`: versions of weights that engines load.

mod stored;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_table, print_text};

const WORKERS: &[Column] = &[
    ("WORKER", "/worker"),
    ("STATE", "/state"),
    ("HELD", "/held/name"),
    ("FENCED", "/fenced"),
    ("CALL", "/call"),
    ("WHY", "/cause"),
];
const NONE: &str = "the job has no engines";

/// Arguments of `treadle weights`.
#[derive(Args, Clone, Debug)]
pub(super) struct WeightsArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: WeightsCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum WeightsCommand {
    /// Have the engines of a job load a version, and wait until it serves.
    Publish {
        /// Folder with whole weights, by an absolute path that each engine can read unless `--store`
        /// is given.
        folder: String,
        /// The job.
        #[arg(long)]
        job: String,
        /// On how many batches the weights were trained.
        #[arg(long)]
        version: u64,
        /// One engine after the other.
        #[arg(long)]
        rolling: bool,
        /// Engines that must be ready before the first is paused; 0 for more than half.
        #[arg(long, default_value_t = 0)]
        quorum: u16,
        /// Put what changed into the daemon's store first, which this machine must have too; hosts
        /// of engines pull it from there.
        #[arg(long)]
        store: bool,
    },
    /// Show which version each engine of a job holds, and why one gets no steps.
    Status {
        /// The job.
        #[arg(long)]
        job: String,
    },
    /// List the versions in the store. This and the commands below need the store on this machine.
    History(stored::OfJob),
    /// Bring a version to this machine, and prove all of it.
    Pull(stored::OfVersion),
    /// Read a version in the store as a whole, and compare each checksum.
    Verify(stored::OfVersion),
    /// Delete versions that nobody needs any more.
    Collect(stored::OfJob),
}

impl WeightsArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, as_json) = (self.remote.client(), self.remote.json);
        match self.command {
            WeightsCommand::Publish {
                folder,
                job,
                version,
                rolling,
                quorum,
                store,
            } => {
                let path = path_of(&job);
                let mut body = json!({
                    "version": version, "rolling": rolling, "quorum": quorum,
                });
                let stored = if store {
                    let stored = stored::publish(&client, &job, &folder, version).await?;
                    body["lineage"] = json!(stored.lineage);
                    Some(stored)
                } else {
                    body["folder"] = json!(folder);
                    None
                };
                client.command(Method::POST, &path, &body).await?;
                let view = ended(&client, &path).await?;
                show(&view, as_json)?;
                if let Some(stored) = stored {
                    stored.prepare_next().await?;
                }
                let last = &view["last"];
                if last["weights"]["version"] != version || last["held"] != 0 {
                    return Ok(());
                }
                let message = "no engine serves the version; each one's reason is above";
                Err(CliError::Failed(message.to_owned()))
            }
            WeightsCommand::Status { job } => show(&client.get(&path_of(&job)).await?, as_json),
            WeightsCommand::History(of) => of.history(&client, as_json).await,
            WeightsCommand::Pull(of) => of.pull(&client, as_json).await,
            WeightsCommand::Verify(of) => of.verify(&client, as_json).await,
            WeightsCommand::Collect(of) => of.collect(&client, as_json).await,
        }
    }
}

fn path_of(job: &str) -> String {
    format!("/api/v1/jobs/{}/weights", escaped(job))
}

/// The weights once no update is under way.
async fn ended(client: &Client, path: &str) -> Result<Value, CliError> {
    loop {
        let view = client.get(&format!("{path}?wait_s=50")).await?;
        if view["update"].is_null() {
            return Ok(view);
        }
    }
}

fn show(view: &Value, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return print_json(view);
    }
    let serving = view["serving"]["name"].as_str().unwrap_or("no version");
    let mut text = format!("{serving} serves\n");
    if let Some(stage) = view["update"]["stage"].as_str() {
        let name = view["update"]["weights"]["name"]
            .as_str()
            .unwrap_or_default();
        let _ = writeln!(text, "{name} is being loaded: {stage}");
    }
    let last = &view["last"];
    if let (Some(held), Some(exposed)) = (last["held"].as_u64(), last["exposed_s"].as_f64()) {
        let name = last["weights"]["name"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "last update: {name} on {held} engines; no step began for {exposed:.2} s"
        );
    }
    print_text(&text)?;
    let behind = view["last"]["behind"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for engine in behind {
        let cause = engine["cause"].as_str().unwrap_or_default();
        print_text(&format!(
            "worker {} was left behind: {cause}\n",
            engine["worker"]
        ))?;
    }
    print_text("\n")?;
    let workers = view["workers"].as_array().map_or(&[][..], Vec::as_slice);
    print_table(WORKERS, workers, NONE)
}
