//! `[cluster]`: several daemons on one store.

use serde::{Deserialize, Serialize};

use super::section::{Form, Setting, section};
use super::{Config, ConfigError, Secret, conflict};
use treadle_trust::{base_url, url_remedy, written};

/// The role of a daemon in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// There are no other daemons.
    #[default]
    Single,
    /// It accepts requests, and schedules while no other daemon does.
    All,
    /// It accepts requests and never schedules.
    Gateway,
}

impl Setting for Role {
    const FORM: Form = Form::Choice(&["single", "all", "gateway"]);
}

section! {
    /// Several daemons on one store; `docs/guides/operate.md` describes the setup.
    ClusterConfig in "cluster" {
        /// Role of this daemon: `single` is the only daemon on its store; `all` accepts requests, and schedules while no other daemon does; `gateway` accepts requests and never schedules.
        role: Role = Role::Single, "";
        /// This daemon's name in the cluster; host name and port if empty.
        name: String = String::new(), "";
        /// URL at which the other daemons reach this one, such as `https://10.0.0.5:8300`; the listening address if empty.
        advertise: String = String::new(), "";
        /// Shared secret with which daemons authenticate to each other and to each other's host tiers: the same for all daemons, at least 16 characters.
        secret: Secret = Secret::default(), "";
        /// Shards that jobs are assigned to by name; the first one also holds tenants and tokens. Each shard has one scheduler at a time, and they may run in different daemons. The list must be the same for all daemons.
        shards: Vec<String> = vec!["main".to_owned()], "";
        /// How long a gateway may be away before its steps are ended.
        gateway_timeout_s: u64 = 10, "seconds", 1 ..= 3600;
    }
}

/// Minimum length of the secret, in characters.
pub(super) const SECRET_CHARS_MIN: usize = 16;
/// Maximum number of shards.
const SHARDS_MAX: usize = 64;

impl ClusterConfig {
    /// Rules across several values.
    pub(super) fn check(&self, config: &Config) -> Result<(), ConfigError> {
        if self.role == Role::Single {
            return Ok(());
        }
        if self.secret.reveal().chars().count() < SECRET_CHARS_MIN {
            return Err(conflict(
                "cluster.secret",
                format!("has fewer than {SECRET_CHARS_MIN} characters"),
                "give all daemons the same secret; `openssl rand -hex 32` makes one",
            ));
        }
        let names = &self.shards;
        let is_name = |name: &String| {
            name.len() <= 32
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        if names.is_empty() || names.len() > SHARDS_MAX || !names.iter().all(is_name) {
            return Err(conflict(
                "cluster.shards",
                format!("is {:?}", self.shards),
                "name 1 to 64 shards in small letters and digits",
            ));
        }
        if !self.advertise.is_empty() && base_url(&self.advertise).is_err() {
            return Err(conflict(
                "cluster.advertise",
                format!("is `{}`", written(&self.advertise)),
                &url_remedy(&self.advertise),
            ));
        }
        if config.store.path == "memory" && config.store.url.is_empty() {
            return Err(conflict(
                "store.path",
                "is `memory`, which other daemons can't access".to_owned(),
                "name a database with store.url, or a file that all daemons can access",
            ));
        }
        Ok(())
    }
}
