//! What is compared: treadle, its plain modes, and the routers of others.

use super::list::{self, Peer};
use crate::bench::BenchError;
use std::path::Path;

/// Treadle with its defaults.
pub(super) const TREADLE: &str = "treadle";
/// Its mode that the others are compared with.
pub(super) const STICKY: &str = "sticky";
/// Its mode that knows no programs.
const LEAST_LOAD: &str = "least-load";

/// A system in front of engines.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// By which it is chosen and reported.
    pub(super) name: String,
    /// What it is.
    pub(super) kind: Kind,
}

/// What a system is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// `treadle serve` in one of its modes, its default one where none is named.
    Treadle {
        /// The value of `scheduler.mode`.
        mode: Option<&'static str>,
    },
    /// Another router.
    Peer(Box<Peer>),
}

impl System {
    /// Whether treadle is compared with it: the plain mode that keeps programs in their place, and
    /// all that others made.
    pub(super) fn is_rival(&self) -> bool {
        self.name == STICKY || matches!(self.kind, Kind::Peer(_))
    }
}

/// What is to run.
#[derive(Clone, Debug)]
pub(super) struct Systems {
    /// In the order in which they run.
    pub(super) all: Vec<System>,
    /// Whether there is a list of other routers.
    pub(super) has_list: bool,
}

impl Systems {
    /// The wanted ones, or all, of treadle's own and those of a list.
    pub(super) fn choose(wanted: &[String], list: &Path) -> Result<Self, BenchError> {
        let peers = list::read(list)?;
        let has_list = peers.is_some();
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
            let remedy = if has_list {
                "take one of these".to_owned()
            } else {
                format!(
                    "scripts/peers.sh installs others and lists them in {}",
                    list.display()
                )
            };
            return Err(BenchError::System {
                name: unknown.clone(),
                known: known.join(", "),
                remedy,
            });
        }
        all.retain(|system| wanted.is_empty() || wanted.contains(&system.name));
        Ok(Self { all, has_list })
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
        assert!(!systems.has_list);
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
