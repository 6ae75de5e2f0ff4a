//! The form of files, and the naming rules.

use crate::code::{code_of, has_word};
use crate::none;
use crate::tree::{Source, names, read, sources};
use std::collections::BTreeMap;

/// Maximum number of lines of a file; split a longer one.
const LINES_MAX: usize = 500;
/// Maximum number of lines below the `src` of a crate; split a larger one.
const CRATE_LINES_MAX: usize = 13_000;
/// Names that do not describe the contents.
const EMPTY_NAMES: &[&str] = &[
    "common", "helper", "helpers", "manager", "managers", "misc", "shared", "types", "util",
    "utils",
];
/// Types that make a replay differ from the original run.
const UNREPEATABLE: &[&str] = &["HashMap", "HashSet", "Instant", "SystemTime"];
/// Where `unsafe` is allowed: the guests' generated bindings, the loading of code that this host
/// compiled before, and the failing file system below SQLite in tests.
const UNSAFE_FILES: &[&str] = &[
    "host/policy-runtime/src/artifacts/trusted.rs",
    "host/store/tests/faults/vfs.rs",
    "sdk/rust/src/guest/",
];

fn rust() -> Vec<Source> {
    let found = sources(&["host", "evidence", "sdk", "plugins", "tests"], ".rs");
    assert!(found.len() > 50, "the walk found {} files", found.len());
    found
}

/// The files that violate a check, with its finding about each.
fn offenders(files: &[Source], check: impl Fn(&Source) -> Option<String>) -> Vec<String> {
    files
        .iter()
        .filter_map(|file| check(file).map(|what| format!("{}: {what}", file.path)))
        .collect()
}

#[test]
fn files_are_short() {
    let long = offenders(&rust(), |file| {
        let lines = file.text.lines().count();
        let generated = file
            .text
            .lines()
            .take(3)
            .any(|line| line.contains("@generated"));
        (lines > LINES_MAX && !generated).then(|| format!("{lines} lines"))
    });
    none(&format!("files of more than {LINES_MAX} lines"), &long);
}

#[test]
fn crates_are_small() {
    let mut crates: BTreeMap<&str, usize> = BTreeMap::new();
    let files = rust();
    for file in &files {
        if let Some((folder, _)) = file.path.split_once("/src/") {
            *crates.entry(folder).or_default() += file.text.lines().count();
        }
    }
    assert!(crates.len() > 50, "the walk found {} crates", crates.len());
    let large = crates.iter().filter(|(_, lines)| **lines > CRATE_LINES_MAX);
    let large: Vec<String> = large
        .map(|(folder, lines)| format!("{folder}: {lines} lines"))
        .collect();
    none(
        &format!("crates of more than {CRATE_LINES_MAX} lines"),
        &large,
    );
}

#[test]
fn every_file_opens_with_its_purpose() {
    let silent = offenders(&rust(), |file| {
        (!file.text.starts_with("//!")).then(|| "doesn't open with //!".to_owned())
    });
    none("files without an opening comment", &silent);
}

#[test]
fn names_describe_the_contents() {
    let empty = offenders(&rust(), |file| {
        let in_path = file
            .path
            .trim_end_matches(".rs")
            .split('/')
            .find(|part| EMPTY_NAMES.contains(part));
        let code = code_of(&file.text);
        let inline = EMPTY_NAMES
            .iter()
            .find(|name| has_word(&code, &format!("mod {name}")));
        in_path
            .or(inline.copied())
            .map(|name| format!("`{name}` is not descriptive"))
    });
    none("names that are not descriptive", &empty);
}

#[test]
fn unsafe_has_its_place() {
    let rust = rust();
    let unsafe_files = offenders(&rust, |file| {
        let allowed = UNSAFE_FILES
            .iter()
            .any(|place| file.path.starts_with(place));
        let code = code_of(&file.text);
        let used = has_word(&code, "unsafe") || has_word(&code, "unsafe_code");
        (used && !allowed).then(|| "`unsafe`, or leave to use it".to_owned())
    });
    none("unsafe code where it is not allowed", &unsafe_files);
}

#[test]
fn the_core_can_be_repeated() {
    let files = sources(&["host/core"], ".rs");
    assert!(files.len() > 10);
    let unrepeatable = offenders(&files, |file| {
        let code = code_of(&file.text);
        UNREPEATABLE
            .iter()
            .find(|word| has_word(&code, word))
            .map(|word| (*word).to_owned())
    });
    none("what a replay can't repeat, in the core", &unrepeatable);
}

/// Only the nearest `clippy.toml` is read, so the core's has to repeat the other's.
#[test]
fn the_core_keeps_the_lints_of_the_workspace() {
    let core = read("host/core/clippy.toml");
    let missing: Vec<String> = read("clippy.toml")
        .lines()
        .filter(|line| !line.starts_with('#') && !core.contains(line))
        .map(str::to_owned)
        .collect();
    none(
        "settings of clippy.toml that host/core/clippy.toml lacks",
        &missing,
    );
}

/// Worlds of the contract: those files that declare a world of their own name.
fn worlds() -> Vec<String> {
    let worlds: Vec<String> = sources(&["wit"], ".wit")
        .into_iter()
        .filter_map(|file| {
            let name = file
                .path
                .strip_prefix("wit/")?
                .strip_suffix(".wit")?
                .to_owned();
            let declared = file.text.lines().any(|line| {
                line.trim()
                    .strip_prefix("world ")
                    .is_some_and(|rest| rest.trim_end_matches('{').trim() == name)
            });
            declared.then_some(name)
        })
        .collect();
    assert!(!worlds.is_empty(), "wit/ declares no world");
    worlds
}

#[test]
fn one_name_in_four_places() {
    let rust = rust();
    let plugins = names("plugins");
    let mut missing = Vec::new();
    for world in worlds() {
        let file = world.replace('-', "_");
        let runtime = format!("host/policy-runtime/src/worlds/{file}.rs");
        if !rust.iter().any(|source| source.path == runtime) {
            missing.push(format!("{world}: no {runtime}"));
        }
        if !plugins
            .iter()
            .any(|name| name.ends_with(&format!("-{world}")))
        {
            missing.push(format!("{world}: no plugins/*-{world}/"));
        }
        let tested = rust.iter().any(|source| {
            ["tests/", "host/policy-runtime/tests/"]
                .iter()
                .any(|folder| source.path.starts_with(folder))
                && source.path.contains(file.as_str())
        });
        if !tested {
            missing.push(format!(
                "{world}: no test named after it in tests/ or host/policy-runtime/tests/"
            ));
        }
    }
    none("worlds that are not in all four places", &missing);
}
