//! `[cluster]`: several daemons on one store.

use serde::{Deserialize, Serialize};

use super::section::{Form, Setting, section};
use super::{Config, ConfigError, Secret, conflict};
use treadle_trust::{base_url, url_remedy, written};

/// What a daemon does beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// There are no other ones.
    #[default]
    Single,
    /// It takes requests in, and schedules while no other does.
    All,
    /// It takes requests in, and never schedules.
    Gateway,
}

impl Setting for Role {
    const FORM: Form = Form::Choice(&["single", "all", "gateway"]);
}

section! {
    /// Several daemons on one store; `docs/guides/operate.md` has the whole of it.
    ClusterConfig in "cluster" {
        /// What this daemon does: `single` is alone with its store; `all` takes requests in, and schedules while no other daemon does; `gateway` takes requests in, and never schedules.
        role: Role = Role::Single, "";
        /// Its name among the others; the host's name and the port where empty.
        name: String = String::new(), "";
        /// Where the other daemons reach it, such as `https://10.0.0.5:8300`; the address that it listens on where empty.
        advertise: String = String::new(), "";
        /// With it daemons prove to each other that they belong together, and let each other into their host tiers: the same text for all, 16 characters or more.
        secret: Secret = Secret::default(), "";
        /// The shards that jobs are dealt to by name, the first of which is home to tenants and tokens; each has one scheduler at a time, which may be another daemon's for each. The same list for all daemons.
        shards: Vec<String> = vec!["main".to_owned()], "";
        /// How long a gateway may be away before its steps are over.
        gateway_timeout_s: u64 = 10, "seconds", 1 ..= 3600;
    }
}

/// Fewest characters of a secret.
pub(super) const SECRET_CHARS_MIN: usize = 16;
/// Most shards.
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
                format!("has less than {SECRET_CHARS_MIN} characters"),
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
                "is `memory`, which no other daemon can see".to_owned(),
                "name a database with store.url, or a file that all daemons see",
            ));
        }
        Ok(())
    }
}
