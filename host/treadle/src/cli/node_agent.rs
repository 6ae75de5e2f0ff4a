//! `treadle node-agent`: provides a machine's sandboxes to a daemon elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::logs;
use super::output::print_text;
use super::serve::{Signals, listen_flag, stop};
use super::settings::Settings;
use treadle_node_agent::NodeAgent;

/// Arguments of `treadle node-agent`.
#[derive(Args, Clone, Debug)]
pub(super) struct NodeAgentArgs {
    #[command(flatten)]
    settings: Settings,
    /// The daemon's URL, such as http://10.0.0.5:8300; all URLs if several daemons share a store.
    #[arg(long = "daemon", value_name = "URL", value_delimiter = ',')]
    daemons: Vec<String>,
    /// Address to listen on, for the daemon only; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Address under which the daemon reaches this machine; by default the listen address.
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// The node's name; by default the host name and port.
    #[arg(long)]
    name: Option<String>,
    /// Folder for its state, images and sandboxes.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl NodeAgentArgs {
    /// Runs until a signal stops it.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut flags = listen_flag(self.listen);
        let folder = self.folder.map(|folder| folder.display().to_string());
        for (key, value) in [
            ("cluster.advertise", self.advertise),
            ("cluster.name", self.name),
            ("nodes.folder", folder),
        ] {
            flags.extend(value.map(|value| format!("{key}={value}")));
        }
        if !self.daemons.is_empty() {
            flags.push(format!("nodes.daemons={}", self.daemons.join(",")));
        }
        let config = self.settings.load(flags)?;
        let traces = logs::start(&config)?;
        let mut signals = Signals::listen()?;
        let agent = NodeAgent::start(&config).await?;
        let (name, url) = (&agent.name, format!("{}://{}", config.scheme(), agent.addr));
        print_text(&if self.json {
            json!({"url": url, "name": name}).to_string()
        } else {
            format!(
                "the node {name} listens on {url}, and serves {}",
                config.nodes.daemons.join(", ")
            )
        })?;
        signals.next().await;
        let stopped = stop(agent.stop(), &mut signals).await;
        traces.stop().await;
        stopped
    }
}
