//! Which class of hardware the programs of each domain prefer (`RollArt` §5.2).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_machine::Preference;
use treadle_model::ClientName;

/// The key for groups without a domain, and for domains that are not named.
pub const DEFAULT_DOMAIN: &str = "default";
/// Domains that a job may give classes.
pub const AFFINITY_DOMAINS_MAX: usize = 64;

/// Chosen by treadle.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auto {
    /// From what was learnt of the job's domains.
    Auto,
}

/// Which class of hardware the programs of each domain prefer.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`affinity` must be \"auto\", or an object with the name of a class for each domain"
)]
pub enum Affinity {
    /// treadle chooses.
    Auto(Auto),
    /// Class by domain; [`DEFAULT_DOMAIN`] stands for all others.
    Classes(BTreeMap<Box<str>, Box<str>>),
}

impl Affinity {
    /// What is wrong with it, with the limit and the remedy.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self::Classes(classes) = self else {
            return None;
        };
        if classes.len() > AFFINITY_DOMAINS_MAX {
            let domains = classes.len();
            return Some(format!(
                "`affinity` names {domains} domains; name at most {AFFINITY_DOMAINS_MAX}, and give \
                 the others one class with the key `{DEFAULT_DOMAIN}`"
            ));
        }
        let name = |name: &str| ClientName::parse_class("affinity", name).err();
        let mut names = classes.iter().flat_map(|(domain, class)| [domain, class]);
        let error = names.find_map(|of| Some((of, name(of)?)));
        error.map(|(of, error)| format!("{error}; it is `{}`", of.escape_debug()))
    }

    /// The class that was declared for a domain.
    pub fn class_of(&self, domain: &str) -> Option<&str> {
        let Self::Classes(classes) = self else {
            return None;
        };
        let class = classes.get(domain).or_else(|| classes.get(DEFAULT_DOMAIN));
        class.map(|class| &**class)
    }

    /// What programs of groups with this domain prefer.
    pub(crate) fn preference(&self, domain: &str) -> Preference {
        match (self, self.class_of(domain)) {
            (Self::Auto(_), _) => Preference::Auto,
            (_, Some(class)) => Preference::Class(class.into()),
            (_, None) => Preference::Any,
        }
    }
}
