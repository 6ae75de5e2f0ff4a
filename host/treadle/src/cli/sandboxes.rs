//! `treadle sandboxes`: isolated environments for programs' commands.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use std::path::PathBuf;

use super::actions::{kind_of, run_to_end};
use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::output::{Column, plain, print_json, print_table, print_text};

const SANDBOXES: &[Column] = &[
    ("SANDBOX", "/id"),
    ("STATE", "/state"),
    ("NODE", "/node"),
    ("IMAGE", "/image"),
    ("JOB", "/job"),
    ("PROGRAM", "/program_id"),
    ("MEMORY", "/memory_bytes"),
    ("DISK", "/disk_bytes"),
    ("COMMANDS", "/commands"),
];
const SNAPSHOTS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("SANDBOX", "/sandbox"),
    ("IMAGE", "/image"),
    ("DISK", "/disk_bytes"),
];
const PATH: &str = "/api/v1/sandboxes";

/// Arguments of `treadle sandboxes`.
#[derive(Args, Clone, Debug)]
pub(super) struct SandboxesArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<SandboxesCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum SandboxesCommand {
    /// List sandboxes, oldest first.
    List,
    /// Create a sandbox.
    Create(CreateArgs),
    /// Show a sandbox.
    Show {
        /// The sandbox's name.
        sandbox: String,
    },
    /// Run a command in a sandbox, wait for its end and print its output.
    Run(RunArgs),
    /// Stop a sandbox's processes; they keep their memory.
    Pause {
        /// The sandbox's name.
        sandbox: String,
    },
    /// Resume a sandbox's processes.
    Resume {
        /// The sandbox's name.
        sandbox: String,
    },
    /// Create sandboxes with the current files of a sandbox.
    Fork {
        /// The sandbox's name.
        sandbox: String,
        /// Number of sandboxes.
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Save the current files of a sandbox, to create others from them.
    Snapshot {
        /// The sandbox's name.
        sandbox: String,
        /// A name for the snapshot, in addition to its ID.
        #[arg(long)]
        name: Option<String>,
    },
    /// List snapshots, oldest first.
    Snapshots,
    /// Remove a snapshot; sandboxes created from it stay.
    RemoveSnapshot {
        /// The snapshot's ID or name.
        snapshot: String,
    },
    /// Remove a sandbox with its processes and files.
    Remove {
        /// The sandbox's name.
        sandbox: String,
    },
    /// List images.
    Images,
    /// Create an image from a folder, a tar archive or an OCI image layout on the daemon's machine.
    Import {
        /// The image's name.
        image: String,
        /// Source path, below a folder of `sandboxes.image_folders`.
        path: PathBuf,
        /// Let all tenants use it.
        #[arg(long)]
        shared: bool,
    },
}

#[derive(Args, Clone, Debug)]
struct CreateArgs {
    /// Image or snapshot to create it from.
    #[arg(long, default_value = "system")]
    image: String,
    /// The program with which it ends.
    #[arg(long)]
    program: Option<String>,
    /// Lifetime, in seconds.
    #[arg(long)]
    ttl_s: Option<u64>,
    /// Print only its name.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Args, Clone, Debug)]
struct RunArgs {
    /// The sandbox's name.
    sandbox: String,
    /// CPU cores for the command.
    #[arg(long, default_value_t = 1)]
    cores: u64,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl SandboxesArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        let of = |sandbox: &str| format!("{PATH}/{}", escaped(sandbox));
        let nothing = Value::Null;
        match self.command.unwrap_or(SandboxesCommand::List) {
            SandboxesCommand::List => list(&client.get(PATH).await?, json),
            SandboxesCommand::Create(create) => {
                let body = json!({"image": create.image, "program_id": create.program, "ttl_s": create.ttl_s});
                let made = client.command(Method::POST, PATH, &body).await?;
                match (create.quiet, json) {
                    (true, true) => print_json(&made["id"]),
                    (true, false) => print_text(&plain(&made["id"])),
                    (false, json) => one(&made, json),
                }
            }
            SandboxesCommand::Show { sandbox } => one(&client.get(&of(&sandbox)).await?, json),
            SandboxesCommand::Run(run) => run.run(&client, json).await,
            SandboxesCommand::Pause { sandbox } => {
                let path = format!("{}/pause", of(&sandbox));
                one(&client.command(Method::POST, &path, &nothing).await?, json)
            }
            SandboxesCommand::Resume { sandbox } => {
                let path = format!("{}/resume", of(&sandbox));
                one(&client.command(Method::POST, &path, &nothing).await?, json)
            }
            SandboxesCommand::Fork { sandbox, count } => {
                let (path, body) = (format!("{}/fork", of(&sandbox)), json!({"count": count}));
                list(&client.command(Method::POST, &path, &body).await?, json)
            }
            SandboxesCommand::Snapshot { sandbox, name } => {
                let (path, body) = (format!("{}/snapshot", of(&sandbox)), json!({"name": name}));
                let made = client.command(Method::POST, &path, &body).await?;
                snapshots(&json!({"snapshots": [made]}), json)
            }
            SandboxesCommand::Snapshots => snapshots(&client.get("/api/v1/snapshots").await?, json),
            SandboxesCommand::RemoveSnapshot { snapshot } => {
                let path = format!("/api/v1/snapshots/{}", escaped(&snapshot));
                let left = client.command(Method::DELETE, &path, &nothing).await?;
                snapshots(&left, json)
            }
            SandboxesCommand::Remove { sandbox } => {
                let path = of(&sandbox);
                one(
                    &client.command(Method::DELETE, &path, &nothing).await?,
                    json,
                )
            }
            SandboxesCommand::Images => images(&client.get("/api/v1/images").await?, json),
            SandboxesCommand::Import {
                image,
                path,
                shared,
            } => {
                let (to, body) = (
                    format!("/api/v1/images/{}", escaped(&image)),
                    json!({"path": path, "shared": shared}),
                );
                images(&client.command(Method::PUT, &to, &body).await?, json)
            }
        }
    }
}

impl RunArgs {
    async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let body = json!({
            "kind": kind_of(&self.command), "cost": {"cpu": self.cores},
            "run": {"sandbox": {"id": self.sandbox, "command": self.command}},
        });
        run_to_end(client, &body, json).await
    }
}

fn list(answer: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(answer);
    }
    let rows = answer["sandboxes"].as_array();
    let rows = rows.map_or(&[][..], Vec::as_slice);
    print_table(SANDBOXES, rows, "there are no sandboxes")
}

fn one(view: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(view);
    }
    print_table(SANDBOXES, std::slice::from_ref(view), "")?;
    match view["cause"].as_str() {
        Some(cause) => print_text(&format!("\n{cause}")),
        None => Ok(()),
    }
}

fn snapshots(answer: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(answer);
    }
    let rows = answer["snapshots"].as_array();
    let rows = rows.map_or(&[][..], Vec::as_slice);
    print_table(SNAPSHOTS, rows, "there are no snapshots")
}

fn images(answer: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(answer);
    }
    let names = answer["images"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    print_text(&names.join("\n"))
}
