//! The worlds that policies can target, from the WIT package in `wit/`.

pub(crate) mod eviction;

use wit_parser::{Resolve, SourceMap, WorldId};

/// The package that all worlds belong to.
pub(crate) const PACKAGE: &str = "treadle:policy";

/// Names of the worlds, each with a file here.
pub(crate) const WORLDS: [&str; 1] = ["eviction"];

/// Interfaces that a policy may import.
pub(crate) const IMPORTS: [&str; 2] = ["treadle:policy/host", "treadle:policy/types"];

const SOURCES: [(&str, &str); 4] = [
    ("types.wit", include_str!("../../../../wit/types.wit")),
    ("host.wit", include_str!("../../../../wit/host.wit")),
    ("plugin.wit", include_str!("../../../../wit/plugin.wit")),
    ("eviction.wit", include_str!("../../../../wit/eviction.wit")),
];

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
        let worlds = WORLDS
            .iter()
            .map(|&name| (name, resolve.packages[package].worlds[name]))
            .collect();
        Self { resolve, worlds }
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
    }

    #[test]
    fn every_wit_file_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut embedded = SOURCES.map(|(name, _)| name.to_owned());
        embedded.sort();
        assert_eq!(files, embedded);
    }
}
