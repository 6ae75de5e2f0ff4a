//! `treadle node-agent`: the agent of a machine that has sandboxes for a daemon elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::logs;
use super::output::print_text;
use super::serve::{Signals, listen_flag, stop};
use super::settings::Settings;
use treadle_server::node_agent::NodeAgent;

/// Arguments of `treadle node-agent`.
#[derive(Args, Clone, Debug)]
pub(super) struct NodeAgentArgs {
    #[command(flatten)]
    settings: Settings,
    /// Where the daemon is, such as http://10.0.0.5:8300; all of them where several share a store.
    #[arg(long = "daemon", value_name = "URL", value_delimiter = ',')]
    daemons: Vec<String>,
    /// Address to listen on, for the daemon alone; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where the daemon reaches this machine; the address that is listened on without it.
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// What people call this node; the host's name and the port without it.
    #[arg(long)]
    name: Option<String>,
    /// Where its state, its images and its sandboxes are.
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
