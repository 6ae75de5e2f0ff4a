//! `treadle nodes`: machines that provide sandboxes for a daemon.

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
const NONE: &str = "no nodes are connected; run `treadle node-agent` on a machine to add it";
/// Pause between two polls of a node that is drained.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// After this time a node's report is newer than the change of its state.
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
    /// Create no new sandboxes on a node; existing ones stay.
    Cordon {
        /// The node's name or mark.
        node: String,
    },
    /// Create no new sandboxes on a node, and wait until it has none.
    Drain {
        /// The node's name or mark.
        node: String,
        /// Maximum wait, in seconds.
        #[arg(long, default_value_t = 3_600)]
        timeout_s: u64,
    },
    /// Allow new sandboxes on a node again.
    Activate {
        /// The node's name or mark.
        node: String,
    },
}

impl NodesArgs {
    /// Sends the request and prints the response.
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

/// Waits until a node has no sandboxes and returns its row.
async fn drained(client: &Client, mut row: Value, most: Duration) -> Result<Value, CliError> {
    let began = std::time::Instant::now();
    let mark = row["mark"].clone();
    // The node's report may be up to a second old.
    let mut is_fresh = false;
    while row["sandboxes"] != json!(0) || !is_fresh {
        if began.elapsed() >= most {
            let left = &row["sandboxes"];
            return Err(CliError::Failed(format!(
                "the node still has {left} sandboxes and takes no new ones; remove them, or wait again"
            )));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let answer = client.get(PATH).await?;
        let found = rows(&answer).iter().find(|row| row["mark"] == mark);
        let gone = || CliError::Failed("the node was removed with its sandboxes".into());
        row = found.ok_or_else(gone)?.clone();
        is_fresh = began.elapsed() >= FRESH_AFTER && row["state"] != "away";
    }
    Ok(row)
}
