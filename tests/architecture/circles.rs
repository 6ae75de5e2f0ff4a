//! No circles among the modules of a crate: the top ones, and in large crates those below them.

use crate::code::code_of;
use crate::none;
use crate::tree::{Source, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Folders whose modules still form cycles. The list may only get shorter.
const STILL_CIRCULAR: &[&str] = &[
    "host/dst/src",
    "host/dst/src/model",
    "host/gateway/src/request",
    "host/policy-runtime/src",
    "host/server/src/cluster",
    "host/server/src/messaging",
    "host/store/src",
    "host/store/src/sqlite",
    "host/transfer/src",
    "host/treadle/src/cli",
    "host/wire/src/request",
    "host/wire/src/usage",
];

type Edges = BTreeMap<String, BTreeSet<String>>;

/// Crates with more lines than this are looked into two modules deep.
const LARGE_LINES: usize = 8_000;

#[test]
fn modules_lie_on_no_circle() {
    let mut crates: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for source in sources(&["host"], ".rs") {
        if let Some((folder, _)) = source.path.split_once("/src/") {
            crates
                .entry(format!("{folder}/src"))
                .or_default()
                .push(source);
        }
    }
    assert!(crates.len() > 20, "{} crates", crates.len());
    let mut offenders = Vec::new();
    for (folder, files) in &crates {
        check(folder, "crate", files, &mut offenders);
        let lines: usize = files.iter().map(|file| file.text.lines().count()).sum();
        if lines > LARGE_LINES {
            for module in folders_of(folder, files) {
                let below = format!("{folder}/{module}");
                check(&below, &format!("crate::{module}"), files, &mut offenders);
            }
        }
    }
    none("modules that lie on circles", &offenders);
}

/// The top modules of a crate that are folders.
fn folders_of(folder: &str, files: &[Source]) -> BTreeSet<String> {
    let inside = files.iter().map(|file| &file.path[folder.len() + 1..]);
    let modules = inside.filter_map(|path| Some(path.split_once('/')?.0.to_owned()));
    modules
        .filter(|module| !is_test(&format!("{module}/")))
        .collect()
}

/// Checks the modules of a folder, which is the module `prefix`.
fn check(folder: &str, prefix: &str, files: &[Source], offenders: &mut Vec<String>) {
    let inside = format!("{folder}/");
    let root = ["lib.rs", "main.rs", "mod.rs"].map(|name| format!("{inside}{name}"));
    let beside = format!("{folder}.rs");
    let is_root = |file: &&Source| root.contains(&file.path) || file.path == beside;
    let root = files.iter().find(is_root);
    let below: Vec<&Source> = files
        .iter()
        .filter(|file| file.path.starts_with(&inside) && !is_root(file))
        .collect();
    let edges = edges_of(folder, prefix, root, &below);
    let on_circle: Vec<&String> = edges.keys().filter(|m| reaches(&edges, m, m)).collect();
    let is_known = STILL_CIRCULAR.contains(&folder);
    if is_known && on_circle.is_empty() {
        offenders.push(format!(
            "{folder} has no circle any more; take it off the list"
        ));
    }
    if !is_known && !on_circle.is_empty() {
        offenders.push(format!("{folder}: {on_circle:?}"));
    }
}

/// Which module of a folder uses which.
fn edges_of(folder: &str, prefix: &str, root: Option<&Source>, files: &[&Source]) -> Edges {
    let inside = |file: &Source| file.path[folder.len() + 1..].to_owned();
    let tops: BTreeSet<String> = files.iter().map(|file| top_of(&inside(file))).collect();
    let reexports = root.map_or_else(BTreeMap::new, |file| reexports(&file.text, &tops));
    let mut edges = Edges::new();
    for file in files {
        let path = inside(file);
        let from = top_of(&path);
        if is_test(&path) {
            continue;
        }
        let code = without_tests(&code_of(&file.text));
        let depth = path.matches('/').count() + usize::from(!path.ends_with("mod.rs"));
        let supers = vec!["super"; depth].join("::");
        let used = heads(&code, prefix)
            .into_iter()
            .chain(heads(&code, &supers));
        for name in used {
            let to = if tops.contains(&name) {
                Some(&name)
            } else {
                reexports.get(&name)
            };
            if let Some(to) = to.filter(|to| **to != from) {
                edges.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    edges
}

fn top_of(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    first.trim_end_matches(".rs").to_owned()
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("tests/")
}

fn reaches(edges: &Edges, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(at) = next.pop() {
        for module in edges.get(at).into_iter().flatten() {
            if module == to {
                return true;
            }
            if seen.insert(module) {
                next.push(module);
            }
        }
    }
    false
}

/// The names that the root re-exports from its modules.
fn reexports(root: &str, tops: &BTreeSet<String>) -> BTreeMap<String, String> {
    let code = code_of(root);
    let uses = code
        .split("use ")
        .skip(1)
        .filter_map(|text| text.split_once(';'));
    let mut found = BTreeMap::new();
    for (path, _) in uses {
        let Some((module, names)) = path.split_once("::") else {
            continue;
        };
        if tops.contains(module) {
            for name in words(names) {
                found.insert(name, module.to_owned());
            }
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The first names behind `prefix::`, those of a list included.
fn heads(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let pattern = format!("{prefix}::");
    for (at, _) in code.match_indices(&pattern) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c)) {
            continue;
        }
        let rest = &code[at + pattern.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.extend(words(rest).next());
            continue;
        };
        let mut depth = 1;
        let mut flat = String::new();
        for c in list.chars() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            match depth {
                0 => break,
                1 => flat.push(c),
                _ => {}
            }
        }
        found.extend(flat.split(',').filter_map(|item| words(item).next()));
    }
    found
}

/// The code without parts that are compiled only for tests.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        let end = after.find([';', '{']).unwrap_or(after.len());
        rest = &after[end..];
        if rest.starts_with('{') {
            rest = &rest[block(rest)..];
        }
    }
    kept + rest
}

/// Length of the block that some code begins with.
fn block(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

#[test]
fn a_circle_is_seen() {
    let file = |path: &str, text: &str| Source {
        path: format!("host/x/src/{path}"),
        text: text.to_owned(),
    };
    let edges_among = |files: &[Source]| {
        let below: Vec<&Source> = files[1..].iter().collect();
        edges_of("host/x/src", "crate", files.first(), &below)
    };
    let mut files = [
        file("lib.rs", "mod a; mod b; mod c; pub use c::Seen;"),
        file("a.rs", "use crate::{b::{X, Y}, d}; // crate::c"),
        file("b/mod.rs", "use super::Seen;"),
        file(
            "c.rs",
            "#[cfg(test)] mod tests { use crate::a::Z; } use crate::a;",
        ),
    ];
    let edges = edges_among(&files);
    assert!(reaches(&edges, "a", "a"), "{edges:?}");
    files[3] = file("c.rs", "#[cfg(test)] mod tests { use crate::a::Z; }");
    let edges = edges_among(&files);
    assert!(!reaches(&edges, "a", "a"), "{edges:?}");
}
