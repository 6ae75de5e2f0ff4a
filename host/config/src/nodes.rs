//! `[nodes]`: machines that have sandboxes for a daemon, and the agent that each of them runs.

use super::section::section;
use super::{Config, ConfigError, Role, conflict};
use treadle_trust::base_url;

/// Fewest characters of the secret that a daemon and its nodes share.
const SECRET_CHARS_MIN: usize = 16;

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
        self.actions.enabled && self.cluster.role == Role::Single && secret >= SECRET_CHARS_MIN
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
                let problem = format!("has `{url}`: {why}");
                return Err(conflict("nodes.daemons", problem, remedy));
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
