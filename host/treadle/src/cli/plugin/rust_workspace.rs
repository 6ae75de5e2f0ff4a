//! `Cargo.toml` of a new policy in Rust: a workspace with the policy and the SDK, pinned to the
//! versions that the SDK is tested with.

use toml::{Table, Value};

use super::files::text;

/// Libraries of the repository's workspace that a policy and the SDK need.
const LIBRARIES: &[&str] = &["serde", "serde_json", "thiserror", "wit-bindgen"];
const HEADER: &str =
    "# A policy for treadle, and in treadle-plugin/ the SDK that it is written with.\n";

/// The manifest of a policy.
pub(super) fn manifest(name: &str, world: &str) -> String {
    let root: Table = toml::from_str(text("Cargo.toml")).unwrap_or_default();
    let of_root = |path: &[&str]| {
        let first = root.get(path[0])?;
        path[1..]
            .iter()
            .try_fold(first, |value, key| value.get(key))
            .cloned()
    };
    let taken = |path: &[&str]| of_root(path).unwrap_or(Value::Table(Table::new()));
    let mut libraries = Table::new();
    for library in LIBRARIES {
        libraries.insert(
            (*library).to_owned(),
            taken(&["workspace", "dependencies", library]),
        );
    }
    let sdk = Table::from_iter([("path".to_owned(), Value::from("treadle-plugin"))]);
    libraries.insert("treadle-plugin".to_owned(), sdk.into());
    // The SDK inherits its workspace's lints; policy authors choose their own.
    let lints = Table::from_iter([("rust".to_owned(), Value::Table(Table::new()))]);
    let workspace = Table::from_iter([
        ("resolver".to_owned(), "3".into()),
        (
            "members".to_owned(),
            Value::Array(vec!["treadle-plugin".into()]),
        ),
        ("package".to_owned(), taken(&["workspace", "package"])),
        ("dependencies".to_owned(), libraries.into()),
        ("lints".to_owned(), lints.into()),
    ]);
    let profile = Table::from_iter([("guest".to_owned(), taken(&["profile", "guest"]))]);
    let manifest = Table::from_iter([
        ("package".to_owned(), package(name, world).into()),
        ("lib".to_owned(), crate_kinds().into()),
        ("dependencies".to_owned(), dependencies().into()),
        ("workspace".to_owned(), workspace.into()),
        ("profile".to_owned(), profile.into()),
    ]);
    format!(
        "{HEADER}\n{}",
        toml::to_string_pretty(&manifest).unwrap_or_default()
    )
}

fn package(name: &str, world: &str) -> Table {
    let inherited = || Table::from_iter([("workspace".to_owned(), Value::Boolean(true))]);
    Table::from_iter([
        ("name".to_owned(), name.into()),
        ("version".to_owned(), "0.1.0".into()),
        (
            "description".to_owned(),
            format!("A treadle policy of the world {world}").into(),
        ),
        ("edition".to_owned(), inherited().into()),
        ("publish".to_owned(), false.into()),
    ])
}

fn crate_kinds() -> Table {
    let kinds = vec!["cdylib".into(), "rlib".into()];
    Table::from_iter([("crate-type".to_owned(), Value::Array(kinds))])
}

fn dependencies() -> Table {
    let inherited = || Table::from_iter([("workspace".to_owned(), Value::Boolean(true))]);
    ["serde", "serde_json", "treadle-plugin"]
        .map(|library| (library.to_owned(), inherited().into()))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_finds_all_that_it_takes_from_its_workspace() {
        let manifest: Table = toml::from_str(&manifest("a", "reward")).unwrap();
        let libraries = &manifest["workspace"]["dependencies"];
        let sdk: Table = toml::from_str(text("sdk/rust/Cargo.toml")).unwrap();
        let wasm = &sdk["target"]["cfg(target_family = \"wasm\")"]["dependencies"];
        for table in [&sdk["dependencies"], wasm] {
            for name in table.as_table().unwrap().keys() {
                let version = libraries[name]
                    .get("version")
                    .or(libraries[name].as_str().and(Some(&libraries[name])));
                assert!(version.is_some(), "{name} has no version");
            }
        }
        assert_eq!(
            manifest["profile"]["guest"]["inherits"].as_str(),
            Some("release")
        );
        assert!(manifest["workspace"]["package"]["edition"].is_str());
    }
}
