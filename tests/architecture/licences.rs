//! Checks licences, sources and bans of all dependencies against `deny.toml`.

use std::process::Command;

use crate::none;
use crate::tree::{packages, read};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The list that `key` holds in `[section]` of `deny.toml`.
fn list(section: &str, key: &str) -> Vec<String> {
    let text = read("deny.toml");
    let entries: Vec<String> = text
        .split_once(&format!("[{section}]"))
        .and_then(|(_, rest)| rest.split_once(&format!("\n{key} = [")))
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(entries, _)| {
            entries
                .split('"')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default();
    assert!(!entries.is_empty(), "deny.toml has no {key} in [{section}]");
    entries
}

/// The platform that the tests run on: dependencies of others may be missing.
fn platform() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .expect("rustc tells its host")
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let allowed = list("licenses", "allow");
    let packages = packages(&["--locked", "--filter-platform", &platform()]);
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let offenders: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or("no licence");
            (!is_allowed(licence, &allowed)).then(|| format!("{}: {licence}", package["name"]))
        })
        .collect();
    none(
        "dependencies whose licence deny.toml doesn't allow",
        &offenders,
    );
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let offenders: Vec<String> = packages(&["--locked", "--filter-platform", &platform()])
        .iter()
        .filter_map(|package| {
            let source = package["source"].as_str()?;
            (source != CRATES_IO).then(|| format!("{}: {source}", package["name"]))
        })
        .collect();
    none("dependencies from elsewhere", &offenders);
}

#[test]
fn no_dependency_is_banned() {
    let text = read("deny.toml");
    let banned = text.split("{ crate = \"").skip(1);
    let banned: Vec<&str> = banned.filter_map(|rest| rest.split('"').next()).collect();
    assert!(!banned.is_empty(), "deny.toml bans nothing");
    let names = packages(&["--locked", "--filter-platform", &platform()]);
    let names = names.iter().filter_map(|package| package["name"].as_str());
    let offenders: Vec<String> = names
        .filter(|name| banned.contains(name))
        .map(str::to_owned)
        .collect();
    none("dependencies that deny.toml bans", &offenders);
}

/// Whether an SPDX expression can be met with some licences. A slash is an old way to write OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let met = any(&mut words, allowed);
    met && words.is_empty()
}

/// `all OR all …`; takes what it reads off the end of `words`.
fn any(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut met = all(words, allowed);
    while words.last() == Some(&"OR") {
        words.pop();
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    let mut met = one(words, allowed);
    while words.last() == Some(&"AND") {
        words.pop();
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Vec<&str>, allowed: &[String]) -> bool {
    match words.pop() {
        Some("(") => {
            let met = any(words, allowed);
            words.pop() == Some(")") && met
        }
        Some(licence) if words.last() == Some(&"WITH") => {
            words.pop();
            let exception = words.pop().unwrap_or_default();
            allowed.contains(&format!("{licence} WITH {exception}"))
        }
        Some(licence) => allowed.iter().any(|known| known == licence),
        None => false,
    }
}

#[test]
fn expressions_are_understood() {
    let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT/GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("GPL-3.0 OR MIT AND Zlib", true),
        ("(GPL-3.0 OR MIT) AND BSD-3-Clause", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
        ("Apache-2.0", false),
        ("MIT WITH something", false),
        ("(MIT", false),
        ("no licence", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), met, "{expression}");
    }
}
