//! `[nodes]`: machines that run sandboxes for a daemon, and the agent on each of them.

use super::cluster::SECRET_CHARS_MIN;
use super::section::section;
use super::{Config, ConfigError, conflict};
use treadle_core::ActionsConfig;
use treadle_model::Span;
use treadle_trust::{base_url, url_remedy, written};

/// Seconds that a node has, after it is back, to report what has ended.
const AFTER_S: u64 = 10;

section! {
    /// Machines that run sandboxes for a daemon (docs/sandboxes.md). A daemon accepts nodes if `actions.enabled` and `cluster.secret` are set; the agent of a node, `treadle node-agent`, has the same secret.
    NodesSection in "nodes" {
        /// How long a node may be away before its sandboxes are lost and its actions are ended.
        away_s_max: u64 = 60, "seconds", 1 ..= 86_400;
        /// For an agent: URLs of its daemon, such as `http://10.0.0.5:8300`; list all daemons that share the store.
        daemons: Vec<String> = Vec::new(), "";
        /// For an agent: folder of its state, images and sandboxes; in `/var/lib/treadle` if empty.
        folder: String = String::new(), "";
    }
}

impl Config {
    /// Whether other machines may run sandboxes for this daemon.
    pub fn takes_nodes(&self) -> bool {
        let secret = self.cluster.secret.reveal().chars().count();
        self.actions.enabled && secret >= SECRET_CHARS_MIN
    }

    /// The core's settings for actions. The time to stop an action exceeds the time after which its
    /// node is lost, so that an action on a node that is away is not given up first.
    pub(super) fn actions_core(&self) -> ActionsConfig {
        let core = self.actions.core();
        let away_max = Span::from_secs(self.nodes.away_s_max + AFTER_S);
        let stop_max = if self.takes_nodes() {
            core.stop_max.max(away_max)
        } else {
            core.stop_max
        };
        ActionsConfig { stop_max, ..core }
    }

    /// Checks the configuration of an agent.
    ///
    /// # Errors
    /// What is missing, and how to set it.
    pub fn check_agent(&self) -> Result<(), ConfigError> {
        let remedy = "give the daemon's URL with --daemon, such as http://10.0.0.5:8300";
        if self.nodes.daemons.is_empty() {
            return Err(conflict("nodes.daemons", "is empty".to_owned(), remedy));
        }
        for url in &self.nodes.daemons {
            if let Err(why) = base_url(url) {
                let problem = format!("has `{}`: {why}", written(url));
                return Err(conflict("nodes.daemons", problem, &url_remedy(url)));
            }
        }
        if self.cluster.secret.reveal().chars().count() < SECRET_CHARS_MIN {
            let problem = format!("has fewer than {SECRET_CHARS_MIN} characters");
            let remedy = "use the same secret for the daemon and its nodes; `openssl rand -hex 32` makes one";
            return Err(conflict("cluster.secret", problem, remedy));
        }
        let listen = self.server.listen;
        if self.cluster.advertise.is_empty() && listen.ip().is_unspecified() {
            let problem = format!("is empty, but the agent listens on {listen}");
            let remedy = "give the URL at which the daemon reaches this machine with --advertise";
            return Err(conflict("cluster.advertise", problem, remedy));
        }
        Ok(())
    }
}
