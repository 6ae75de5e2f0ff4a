//! `treadle nodes`: machines that have sandboxes for a daemon.

use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Remote, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_table};

const NODES: &[Column] = &[
    ("NODE", "/name"),
    ("MARK", "/mark"),
    ("STATE", "/state"),
    ("FOR S", "/for_s"),
    ("CORES", "/cores"),
    ("MEMORY FREE", "/memory_free_bytes"),
    ("SANDBOXES", "/sandboxes"),
    ("ACTIONS", "/actions"),
    ("URL", "/url"),
];
const PATH: &str = "/api/v1/nodes";
const NONE: &str = "no machine has sandboxes for this daemon; start `treadle node-agent` there";
/// Between two looks at a node that is drained.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// After this what a node tells is newer than what it was told.
const FRESH_AFTER: Duration = Duration::from_millis(2_500);

/// Arguments of `treadle nodes`.
#[derive(Args, Clone, Debug)]
pub(super) struct NodesArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<NodesCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum NodesCommand {
    /// List the nodes.
    List,
    /// Make no new sandboxes on a node; those that it has go on.
    Cordon {
        /// Its name or mark.
        node: String,
    },
    /// Make no new sandboxes on a node, and wait until it has none.
    Drain {
        /// Its name or mark.
        node: String,
        /// Wait for so many seconds at most.
        #[arg(long, default_value_t = 3_600)]
        timeout_s: u64,
    },
    /// Make new sandboxes on a node again.
    Activate {
        /// Its name or mark.
        node: String,
    },
}

impl NodesArgs {
    /// Asks the daemon and prints its answer.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        let row = match self.command.unwrap_or(NodesCommand::List) {
            NodesCommand::List => {
                let answer = client.get(PATH).await?;
                if json {
                    return print_json(&answer);
                }
                return print_table(NODES, rows(&answer), NONE);
            }
            NodesCommand::Cordon { node } => set_state(&client, &node, "cordoned").await?,
            NodesCommand::Drain { node, timeout_s } => {
                let set = set_state(&client, &node, "cordoned").await?;
                drained(&client, set, Duration::from_secs(timeout_s)).await?
            }
            NodesCommand::Activate { node } => set_state(&client, &node, "ready").await?,
        };
        if json {
            return print_json(&row);
        }
        print_table(NODES, std::slice::from_ref(&row), NONE)
    }
}

fn rows(answer: &Value) -> &[Value] {
    answer["nodes"].as_array().map_or(&[], Vec::as_slice)
}

async fn set_state(client: &Client, node: &str, state: &str) -> Result<Value, CliError> {
    let path = format!("{PATH}/{}", escaped(node));
    client
        .command(Method::PATCH, &path, &json!({"state": state}))
        .await
}

/// Waits until a node has no sandboxes; gives it as it is then.
async fn drained(client: &Client, mut row: Value, most: Duration) -> Result<Value, CliError> {
    let began = std::time::Instant::now();
    let mark = row["mark"].clone();
    // What the node tells is up to a second old.
    let mut is_fresh = false;
    while row["sandboxes"] != json!(0) || !is_fresh {
        if began.elapsed() >= most {
            let left = &row["sandboxes"];
            return Err(CliError::Failed(format!(
                "the node still has {left} sandboxes, and takes no new ones; remove them, or wait again"
            )));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let answer = client.get(PATH).await?;
        let found = rows(&answer).iter().find(|row| row["mark"] == mark);
        let gone = || CliError::Failed("the node is away for good, with its sandboxes".into());
        row = found.ok_or_else(gone)?.clone();
        is_fresh = began.elapsed() >= FRESH_AFTER && row["state"] != "away";
    }
    Ok(row)
}
