//! The worlds that policies can target, from the WIT package in `wit/`.

pub(crate) mod allocation;
mod bindings;
pub(crate) mod eviction;
pub(crate) mod host;
pub(crate) mod placement;
pub(crate) mod prediction;
pub(crate) mod priority;
pub(crate) mod reward;
pub(crate) mod shaping;

use treadle_model::World;
use wit_parser::{Resolve, SourceMap, WorldId};

/// The package that all worlds belong to.
pub(crate) const PACKAGE: &str = "treadle:policy";

/// The package's only version.
pub(crate) const VERSION: &str = "1.0.0";

/// Names of the worlds, each with a file here.
pub(crate) const WORLDS: [&str; 7] = [
    "prediction",
    "priority",
    "placement",
    "allocation",
    "eviction",
    "reward",
    "shaping",
];

/// Interfaces that a policy may import.
pub(crate) const IMPORTS: [&str; 2] = ["treadle:policy/host", "treadle:policy/types"];

const SOURCES: [(&str, &str); 10] = [
    ("types.wit", include_str!("../../../../wit/types.wit")),
    ("host.wit", include_str!("../../../../wit/host.wit")),
    ("plugin.wit", include_str!("../../../../wit/plugin.wit")),
    (
        "prediction.wit",
        include_str!("../../../../wit/prediction.wit"),
    ),
    ("priority.wit", include_str!("../../../../wit/priority.wit")),
    (
        "placement.wit",
        include_str!("../../../../wit/placement.wit"),
    ),
    (
        "allocation.wit",
        include_str!("../../../../wit/allocation.wit"),
    ),
    ("eviction.wit", include_str!("../../../../wit/eviction.wit")),
    ("reward.wit", include_str!("../../../../wit/reward.wit")),
    ("shaping.wit", include_str!("../../../../wit/shaping.wit")),
];

/// The world whose own interface this is, if it is one: `eviction` for
/// `treadle:policy/eviction-policy@1.0.0`.
pub(crate) fn world_of(interface: &str) -> Option<World> {
    let name = interface.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    let name = name.split('@').next()?.strip_suffix("-policy")?;
    World::from_name(name)
}

/// The parsed package.
pub(crate) struct Contract {
    pub(crate) resolve: Resolve,
    pub(crate) worlds: Vec<(&'static str, WorldId)>,
}

impl Contract {
    /// Parses the embedded package.
    ///
    /// # Panics
    /// Never: the package is part of the program, and a test parses it.
    pub(crate) fn parse() -> Self {
        let mut sources = SourceMap::new();
        for (path, text) in SOURCES {
            sources.push_str(path, text);
        }
        let group = match sources.parse() {
            Ok(group) => group,
            Err((_, error)) => panic!("the embedded WIT does not parse: {error}"),
        };
        let mut resolve = Resolve::default();
        let package = resolve
            .push_group(group)
            .expect("the embedded WIT resolves");
        let found = |name| resolve.packages[package].worlds[name];
        let worlds = WORLDS.map(|name| (name, found(name))).into();
        Self { resolve, worlds }
    }

    /// Functions of a world's own interface.
    pub(crate) fn functions(&self, world: &str) -> Vec<&str> {
        let own = format!("{world}-policy");
        let mut interfaces = self.resolve.interfaces.iter();
        let own = interfaces.find(|(_, interface)| interface.name.as_ref() == Some(&own));
        own.map_or_else(Vec::new, |(_, own)| {
            own.functions.keys().map(String::as_str).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_package_has_all_worlds_and_no_more() {
        let contract = Contract::parse();
        assert_eq!(contract.worlds.len(), WORLDS.len());
        assert_eq!(contract.resolve.worlds.len(), WORLDS.len());
        assert_eq!(contract.functions("priority"), ["score", "preempt"]);
    }

    #[test]
    fn worlds_match_the_vocabulary_of_the_model_in_order() {
        assert!(World::ALL.iter().map(|world| world.as_str()).eq(WORLDS));
        let interface = "treadle:policy/reward-policy@1.0.0";
        assert_eq!(world_of(interface), Some(World::Reward));
        assert_eq!(world_of("treadle:policy/plugin@1.0.0"), None);
    }

    #[test]
    fn every_wit_file_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "wit"))
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut embedded = SOURCES.map(|(name, _)| name.to_owned());
        embedded.sort();
        assert_eq!(files, embedded);
    }
}
