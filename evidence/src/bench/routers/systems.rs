//! What is compared: treadle, its plain modes, and the routers of others.

use super::list::{self, Peer};
use crate::bench::BenchError;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where `scripts/peers.sh` writes its list.
const LIST: &str = ".treadle/peers/peers.json";
/// Treadle with its defaults.
pub(in crate::bench) const TREADLE: &str = "treadle";
/// Its mode that the others are compared with.
pub(in crate::bench) const STICKY: &str = "sticky";
/// Its mode that knows no programs.
const LEAST_LOAD: &str = "least-load";

/// Which systems run.
#[derive(Args, Clone, Debug)]
pub(in crate::bench) struct SystemsArgs {
    /// Systems to run, with commas between; all by default: `treadle` with its defaults, its modes
    /// `sticky` and `least-load`, and those that are installed.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    systems: Vec<String>,
    /// The list of installed routers, as `scripts/peers.sh` writes it.
    #[arg(long, value_name = "FILE", default_value = LIST)]
    peers: PathBuf,
}

impl Default for SystemsArgs {
    fn default() -> Self {
        Self {
            systems: Vec::new(),
            peers: LIST.into(),
        }
    }
}

impl SystemsArgs {
    /// Those that are wanted.
    pub(in crate::bench) fn choose(&self) -> Result<Systems, BenchError> {
        Systems::choose(&self.systems, &self.peers)
    }
}

/// A system in front of engines.
#[derive(Clone, Debug)]
pub(in crate::bench) struct System {
    /// By which it is chosen and reported.
    pub(in crate::bench) name: String,
    /// What it is.
    pub(in crate::bench) kind: Kind,
}

/// What a system is.
#[derive(Clone, Debug)]
pub(in crate::bench) enum Kind {
    /// `treadle serve` in one of its modes, its default one where none is named.
    Treadle {
        /// The value of `scheduler.mode`.
        mode: Option<&'static str>,
    },
    /// Another router.
    Peer(Box<Peer>),
}

impl System {
    /// Whether others made it.
    pub(in crate::bench) fn is_peer(&self) -> bool {
        matches!(self.kind, Kind::Peer(_))
    }

    /// Whether it is told that engines have ranks.
    pub(in crate::bench) fn is_for_ranks(&self) -> bool {
        self.name.ends_with("-dp-aware")
    }

    /// Whether treadle is compared with it: the plain mode that keeps programs in their place, and
    /// all that others made.
    pub(in crate::bench) fn is_rival(&self) -> bool {
        self.name == STICKY || self.is_peer()
    }
}

/// What is to run.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Systems {
    /// In the order in which they run.
    pub(in crate::bench) all: Vec<System>,
    /// The list of other routers that is not there.
    missing: Option<PathBuf>,
}

impl Systems {
    /// The wanted ones, or all, of treadle's own and those of a list.
    fn choose(wanted: &[String], list: &Path) -> Result<Self, BenchError> {
        let peers = list::read(list)?;
        let missing = peers.is_none().then(|| list.to_owned());
        let own = [
            (TREADLE, None),
            (STICKY, Some(STICKY)),
            (LEAST_LOAD, Some(LEAST_LOAD)),
        ];
        let own = own.map(|(name, mode)| System {
            name: name.to_owned(),
            kind: Kind::Treadle { mode },
        });
        let peers = peers.unwrap_or_default().into_iter().map(|peer| System {
            name: peer.name.clone(),
            kind: Kind::Peer(Box::new(peer)),
        });
        let mut all: Vec<System> = own.into_iter().chain(peers).collect();
        let is_known = |name: &&String| all.iter().any(|system| system.name == **name);
        if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
            let known: Vec<&str> = all.iter().map(|system| system.name.as_str()).collect();
            let remedy = match &missing {
                None => "take one of these".to_owned(),
                Some(list) => format!(
                    "scripts/peers.sh installs others and lists them in {}",
                    list.display()
                ),
            };
            return Err(BenchError::System {
                name: unknown.clone(),
                known: known.join(", "),
                remedy,
            });
        }
        all.retain(|system| wanted.is_empty() || wanted.contains(&system.name));
        Ok(Self { all, missing })
    }

    /// The version of each, for a report.
    pub(in crate::bench) fn versions(&self) -> Value {
        let version = |system: &System| {
            let version = match &system.kind {
                Kind::Treadle { .. } => env!("CARGO_PKG_VERSION"),
                Kind::Peer(peer) => &peer.version,
            };
            (system.name.clone(), Value::from(version))
        };
        Value::Object(self.all.iter().map(version).collect())
    }

    /// What a report says of routers that are not there.
    pub(in crate::bench) fn note(&self) -> Option<String> {
        let list = self.missing.as_ref()?.display();
        Some(format!(
            "There is no {list}, so treadle's own modes alone ran: scripts/peers.sh installs other \
             routers and lists them there."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_treadle_alone_runs_and_others_are_told_how_to_be_had() {
        let nowhere = Path::new("nowhere.json");
        let systems = Systems::choose(&[], nowhere).unwrap();
        let names: Vec<&str> = systems.all.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["treadle", "sticky", "least-load"]);
        assert!(systems.note().unwrap().contains("nowhere.json"));
        let rivals = systems.all.iter().filter(|s| s.is_rival()).count();
        assert_eq!(rivals, 1);
        let wanted = ["sticky".to_owned(), "smg".to_owned()];
        let error = Systems::choose(&wanted, nowhere).unwrap_err();
        assert!(error.is_usage());
        let error = error.to_string();
        assert!(
            error.contains("smg") && error.contains("scripts/peers.sh"),
            "{error}"
        );
        let systems = Systems::choose(&wanted[..1], nowhere).unwrap();
        assert_eq!(systems.all.len(), 1);
    }
}
