//! `[nodes]`: machines that have sandboxes for a daemon, and the agent that each of them runs.

use super::cluster::SECRET_CHARS_MIN;
use super::section::section;
use super::{Config, ConfigError, conflict};
use treadle_core::ActionsConfig;
use treadle_model::Span;
use treadle_trust::{base_url, url_remedy, written};

/// Seconds that a node has, once it is back, to tell what ended.
const AFTER_S: u64 = 10;

section! {
    /// Machines that have sandboxes for a daemon (docs/sandboxes.md). A daemon takes nodes if `actions.enabled` and `cluster.secret` are set; the agent of a node, `treadle node-agent`, has the same secret.
    NodesSection in "nodes" {
        /// How long a node may be away before its sandboxes are lost and its actions are over.
        away_s_max: u64 = 60, "seconds", 1 ..= 86_400;
        /// Of an agent: where its daemon is, such as `http://10.0.0.5:8300`; all of them where several share a store.
        daemons: Vec<String> = Vec::new(), "";
        /// Of an agent: where its state is, its images and its sandboxes; in `/var/lib/treadle` where empty.
        folder: String = String::new(), "";
    }
}

impl Config {
    /// Whether other machines may have sandboxes for this daemon.
    pub fn takes_nodes(&self) -> bool {
        let secret = self.cluster.secret.reveal().chars().count();
        self.actions.enabled && secret >= SECRET_CHARS_MIN
    }

    /// How actions are admitted. What is to end at a node that is away has until after that is lost.
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

    /// Rules for an agent.
    ///
    /// # Errors
    /// What it lacks, and how to give it.
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
            let problem = format!("has less than {SECRET_CHARS_MIN} characters");
            let remedy =
                "give the daemon and its nodes the same one; `openssl rand -hex 32` makes one";
            return Err(conflict("cluster.secret", problem, remedy));
        }
        let listen = self.server.listen;
        if self.cluster.advertise.is_empty() && listen.ip().is_unspecified() {
            let problem = format!("is empty, and the agent listens on {listen}");
            let remedy = "give the URL at which the daemon reaches this machine with --advertise";
            return Err(conflict("cluster.advertise", problem, remedy));
        }
        Ok(())
    }
}
