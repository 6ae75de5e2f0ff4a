//! Checks that links, paths, metrics and test names in the documentation exist.

use crate::none;
use crate::tree::{Source, packages, root, sources};
use serde_json::Value;
use std::path::Path;

/// Folders whose paths in the documentation are checked.
const FOLDERS: &[&str] = &["host/", "plugins/", "scripts/", "sdk/", "tests/", "wit/"];

fn pages() -> Vec<Source> {
    let mut pages = sources(&["docs"], ".md");
    for name in [
        "ARCHITECTURE",
        "CHANGELOG",
        "CONTRIBUTING",
        "README",
        "STYLE",
    ] {
        let path = format!("{name}.md");
        let text = crate::tree::read(&path);
        pages.push(Source { path, text });
    }
    assert!(pages.len() > 20, "{} pages", pages.len());
    pages
}

#[test]
fn links_lead_to_files() {
    let mut broken = Vec::new();
    for page in pages() {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (_, rest) in page
            .text
            .match_indices("](")
            .map(|(at, _)| page.text.split_at(at + 2))
        {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://");
            if is_file && !root().join(folder).join(target).exists() {
                broken.push(format!("{}: {target}", page.path));
            }
        }
    }
    none("links to files that are not there", &broken);
}

#[test]
fn paths_of_code_are_there() {
    let mut missing = Vec::new();
    for page in pages() {
        for path in page.text.split('`').skip(1).step_by(2) {
            let is_plain = path
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder));
            if is_plain && is_path && !root().join(path).exists() {
                missing.push(format!("{}: {path}", page.path));
            }
        }
    }
    none("paths in the documentation that are not there", &missing);
}

/// The names of metrics in a text.
fn metrics_of(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("treadle_");
    starts.map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        rest[..end.unwrap_or(rest.len())].trim_end_matches("_bucket")
    })
}

#[test]
fn dashboards_and_alerts_show_metrics_that_there_are() {
    let code = sources(&["host"], ".rs");
    let mut shown = std::collections::BTreeSet::new();
    let files = ["docs/grafana/dashboard.json", "docs/grafana/alerts.yaml"].map(crate::tree::read);
    shown.extend(files.iter().flat_map(|text| metrics_of(text)));
    assert!(shown.len() > 30, "{} metrics", shown.len());
    let is_there = |name: &&str| {
        let quoted = format!("\"{name}\"");
        code.iter().any(|source| source.text.contains(&quoted))
    };
    let missing: Vec<String> = shown
        .into_iter()
        .filter(|name| !is_there(name))
        .map(str::to_owned)
        .collect();
    none("metrics that no code has", &missing);
}

/// Whether a text has a number of bytes (`64 MiB`) or the key of one that the configuration has
/// (`payloads.bytes_max`), or says that there is nothing to count.
fn names_bytes(text: &str, keys: &str) -> bool {
    let words: Vec<_> = text.split([' ', ',', ';', '/']).collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let is_unit = |word: &str| ["KiB", "MiB", "GiB", "TiB"].contains(&word);
    let has_number = words
        .windows(2)
        .any(|pair| is_number(pair[0]) && is_unit(pair[1]));
    let is_key = |word: &&str| {
        let key = word
            .strip_prefix('`')
            .and_then(|word| word.strip_suffix('`'));
        let name = key
            .and_then(|key| key.split_once('.'))
            .map(|(_, name)| name);
        name.is_some_and(|name| name.contains("bytes") && keys.contains(&format!("\n| `{name}` |")))
    };
    text == "no bytes" || has_number || words.iter().any(is_key)
}

#[test]
fn bounds_in_bytes_are_recognised() {
    let keys = "\n| `bytes_max` | `1` |\n| `rows_max` | `1` |\n";
    for text in [
        "no bytes",
        "1 KiB each",
        "0.5 GiB",
        "within `payloads.bytes_max`",
    ] {
        assert!(names_bytes(text, keys), "{text}");
    }
    for text in [
        "",
        "many",
        "64",
        "GiB",
        "`auth.rows_max`",
        "`store.bytes_most`",
    ] {
        assert!(!names_bytes(text, keys), "{text}");
    }
}

/// Each row of the table of shared resources names its bounds and an existing test.
#[test]
fn each_share_of_tenants_is_tested() {
    let page = crate::tree::read("docs/security.md");
    let section = page.split("## Shares").nth(1).expect("it is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<_> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let code: Vec<_> = ["host", "tests"]
        .iter()
        .flat_map(|top| sources(&[top], ".rs"))
        .collect();
    let keys = crate::tree::read("docs/configuration.md");
    let mut missing = Vec::new();
    for row in rows {
        let row = row.trim_matches('|');
        let cells: Vec<_> = row.split(" | ").map(str::trim).collect();
        let [_, bound, bytes, tenant, refusal, test] = cells[..] else {
            missing.push(format!("not six columns: {row}"));
            continue;
        };
        let has_bound = bound.contains(|c: char| c.is_ascii_digit() || c == '`');
        if !has_bound || !names_bytes(bytes, &keys) || tenant.is_empty() || refusal.is_empty() {
            missing.push(format!("no bound: {row}"));
        }
        let function = format!("fn {}(", test.trim_matches('`'));
        if test.is_empty() || !code.iter().any(|at| at.text.contains(&function)) {
            missing.push(format!("no test: {row}"));
        }
    }
    none("shares of tenants without a bound or a test", &missing);
}

/// rustdoc reads a whole crate to find out whether it has examples, so each crate says it.
#[test]
fn crates_without_examples_have_no_doctests() {
    let lies = packages(&["--no-deps"]).into_iter().filter_map(|package| {
        let name = package["name"].as_str()?.to_owned();
        let targets = package["targets"].as_array()?;
        let is_library = |t: &&Value| {
            t["src_path"]
                .as_str()
                .is_some_and(|p| p.ends_with("src/lib.rs"))
        };
        let library = targets.iter().find(is_library)?;
        let file = Path::new(library["src_path"].as_str()?);
        let folder = file
            .parent()?
            .strip_prefix(root().canonicalize().ok()?)
            .ok()?;
        // Every other fence begins a block; one without a language is Rust.
        let has_example = |file: &Source| {
            let comments = file.text.lines().map(str::trim_start);
            let docs = comments.filter(|line| line.starts_with("///") || line.starts_with("//!"));
            let mut fences = docs.filter_map(|line| line[3..].trim_start().strip_prefix("```"));
            let begins = std::iter::from_fn(|| {
                let language = fences.next();
                fences.next();
                language
            });
            begins
                .into_iter()
                .any(|language| !["json", "text"].contains(&language))
        };
        let has_examples = sources(&[folder.to_str()?], ".rs").iter().any(has_example);
        let is_tested = library["doctest"].as_bool()?;
        (has_examples != is_tested).then(|| format!("{name}: doctest is {is_tested}"))
    });
    none(
        "crates whose manifest and examples disagree; `doctest = false` is for those without",
        &lies.collect::<Vec<_>>(),
    );
}
